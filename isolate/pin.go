//go:build linux

package isolate

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// pin adds the steps that mount directories of a tree onto themselves: those that
// something hidden lies beneath. A mount point cannot be renamed (rename(2),
// EBUSY): otherwise a command could move the directory to another path, where
// the next box of the same trees would hide nothing. What is mounted in the tree
// comes after its pins.
func (b *builder) pin(dirs []string) {
	stage := b.stage
	b.stage = "keeping what is hidden in its place"
	for _, dir := range dirs {
		found := b.do(unix.SYS_OPENAT, num(unix.AT_FDCWD), b.str(dir), num(unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)).path(dir)
		at := found.result()
		m := b.clone(b.of(at), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE).path(dir).result()
		b.do(unix.SYS_MOVE_MOUNT, b.of(m), b.str(""), b.of(at), b.str(""),
			num(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)).path(dir)
		found.expect(b.jump()) // nothing is there; the descriptors are closed with all others
	}
	b.stage = stage
}

// pins are the directories above what is hidden, for each tree those that lie in
// it, the ones nearer to its root first.
func (s Spec) pins() [][]string {
	pins := make([][]string, len(s.Mounts))
	seen := map[string]bool{}
	for _, p := range s.Hide {
		for d := path.Dir(p); d != "/" && !seen[d]; d = path.Dir(d) {
			seen[d] = true
			tree := s.holder(d)
			m := s.Mounts[tree]
			covered := beneathPrivate(d+"/") && !beneathPrivate(m.Target) // by the box's own
			if d != m.Target && !covered && m.renames() {
				pins[tree] = append(pins[tree], d)
			}
		}
	}
	for _, dirs := range pins {
		slices.Sort(dirs)
	}
	return pins
}

// renames reports whether a directory that was there before can be renamed in a
// tree. An overlay without redirect_dir refuses (EXDEV).
func (m Mount) renames() bool {
	return !m.ReadOnly && m.Skeleton == "" && (m.Overlay == nil || m.Overlay.Upper != "" && !m.Overlay.UserXattr)
}

// holder is the index of the mount that a path lies on, or is.
func (s Spec) holder(p string) int {
	best := 0
	for i, m := range s.Mounts {
		if len(m.Target) > len(s.Mounts[best].Target) && (p == m.Target || strings.HasPrefix(p, m.Target+"/")) {
			best = i
		}
	}
	return best
}
