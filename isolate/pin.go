//go:build linux

package isolate

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// pin adds the steps that mount directories of a tree onto themselves: the parents of hidden paths. A mount
// point cannot be renamed (rename(2), EBUSY). Otherwise a command could move the directory to another path,
// where the next container of the same trees would hide nothing. Mounts inside the tree are attached after its
// pins.
func (b *builder) pin(dirs []string) {
	stage := b.stage
	b.stage = "keeping what is hidden in its place"
	for _, dir := range dirs {
		found := b.do(unix.SYS_OPENAT, num(unix.AT_FDCWD), b.str(dir), num(unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)).path(dir)
		at := found.result()
		m := b.clone(b.of(at), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE).path(dir).result()
		b.do(unix.SYS_MOVE_MOUNT, b.of(m), b.str(""), b.of(at), b.str(""),
			num(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)).path(dir)
		found.expect(b.jump()) // the directory does not exist; closeAll closes the descriptors
	}
	b.stage = stage
}

// pins returns the parents of hidden paths, for each tree those that lie in it, outermost first.
func (s Spec) pins() [][]string {
	pins := make([][]string, len(s.Mounts))
	seen := map[string]bool{}
	for _, p := range s.Hide {
		for d := path.Dir(p); d != "/" && !seen[d]; d = path.Dir(d) {
			seen[d] = true
			tree := s.holder(d)
			m := s.Mounts[tree]
			covered := underPrivate(d+"/") && !underPrivate(m.Target) // by /proc, /sys, /dev, /run or /tmp
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

// renames reports whether directories of the tree's base can be renamed. An overlay without redirect_dir
// refuses (EXDEV).
func (m Mount) renames() bool {
	return !m.ReadOnly && m.Skeleton == "" && (m.Overlay == nil || m.Overlay.Upper != "" && !m.Overlay.UserXattr)
}

// holder returns the index of the mount that contains path p.
func (s Spec) holder(p string) int {
	best := 0
	for i, m := range s.Mounts {
		if len(m.Target) > len(s.Mounts[best].Target) && (p == m.Target || strings.HasPrefix(p, m.Target+"/")) {
			best = i
		}
	}
	return best
}
