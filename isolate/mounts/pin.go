//go:build linux

package mounts

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/isolate/launch"
)

// pin adds the system calls by which pid 1 mounts each of dirs, the directories in a tree that pins returned, onto
// itself: a mount point cannot be renamed (rename(2), EBUSY). Otherwise a command could rename the directory, and the
// next container of the same trees would hide nothing. Mounts inside the tree are attached after its pins.
func (pl *Planner) pin(dirs []string) {
	stage := pl.Stage
	pl.Stage = "keeping what is hidden or read-only in its place"
	for _, dir := range dirs {
		found := pl.Do(unix.SYS_OPENAT, launch.Num(unix.AT_FDCWD), pl.Str(dir), launch.Num(unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)).Path(dir)
		at := found.Result()
		m := pl.clone(pl.Of(at), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE).Path(dir).Result()
		pl.Do(unix.SYS_MOVE_MOUNT, pl.Of(m), pl.Str(""), pl.Of(at), pl.Str(""),
			launch.Num(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)).Path(dir)
		found.Expect(pl.Jump()) // the directory does not exist; closeAll closes the descriptors
	}
	pl.Stage = stage
}

// pins returns for each tree of s, outermost first, the parents of the hidden and read-only paths, and of the
// forbidden and guarded programs, that lie in it. A command must not rename them: the next container would not hide,
// protect, forbid or guard anything under the new name.
func pins(s Spec) [][]string {
	list := make([][]string, len(s.Mounts))
	seen := map[string]bool{}
	add := func(p string, may func(Mount) bool) {
		for d := path.Dir(p); d != "/" && !seen[d]; d = path.Dir(d) {
			seen[d] = true
			tree := holder(s, d)
			m := s.Mounts[tree]
			covered := underPrivate(d+"/") && !underPrivate(m.Target) // by /proc, /sys, /dev, /run or /tmp
			if d != m.Target && !covered && may(m) {
				list[tree] = append(list[tree], d)
			}
		}
	}
	for _, p := range s.ReadOnly { // also in what a command of an earlier container has created
		add(p, func(m Mount) bool { return !m.ReadOnly && m.Skeleton == "" })
	}
	for _, p := range slices.Concat(s.Hide, servedHidden(s), s.NoExec, s.Guarded) {
		add(p, renames)
	}
	for _, dirs := range list {
		slices.Sort(dirs)
	}
	return list
}

// servedHidden returns a path in each directory with hidden entries of the trees that a FUSE server shows
// ([Served]), so that the directory is pinned and cannot be renamed. Overlays hide entries by the path in the
// lower layer, which a rename does not change, but the next start of the container lists other names there.
func servedHidden(s Spec) (paths []string) {
	for _, m := range s.Mounts {
		if m.Served == nil {
			continue
		}
		for _, h := range m.Hidden {
			paths = append(paths, path.Join(m.Target, h.Dir, "x"))
		}
	}
	return paths
}

// renames reports whether a command in the container can rename directories of the tree m that come from its
// base, so that those with hidden entries must be pinned. An overlay without redirect_dir refuses that
// (EXDEV).
func renames(m Mount) bool {
	return !m.ReadOnly && m.Skeleton == "" && (m.Overlay == nil || m.Overlay.Upper != "" && !m.Overlay.UserXattr)
}

// holder returns the index in s.Mounts of the innermost mount of the container that contains the path p.
func holder(s Spec, p string) int {
	best := 0
	for i, m := range s.Mounts {
		if len(m.Target) > len(s.Mounts[best].Target) && (p == m.Target || strings.HasPrefix(p, m.Target+"/")) {
			best = i
		}
	}
	return best
}
