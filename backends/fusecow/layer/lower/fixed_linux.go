package lower

import (
	"maps"
	"path"
	"sync"

	"github.com/snapfs/snapfs/internal/vfs"
)

// fixedNames are names that always lead to the inode that they led to at first: those at which something is mounted above
// the filesystem, such as an empty directory over ~/.ssh. When a lookup tells the kernel that such a name has another
// inode, because the user of the lower has replaced the file, the kernel removes the mount in every mount namespace
// (d_invalidate in fs/dcache.c), and the file is seen.
type fixedNames struct {
	mu sync.RWMutex
	// paths are the names, relative to the root of the lower, with the attributes of their first inodes, which are the
	// zero value before the first lookup.
	paths map[string]vfs.Stat
	// last has the last component of each of paths.
	last map[string]bool
}

// add fixes the name at p, and those of all directories above it.
func (x *fixedNames) add(p string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.paths == nil {
		x.paths, x.last = map[string]vfs.Stat{}, map[string]bool{}
	}
	for p = path.Clean(p); p != "."; p = path.Dir(p) {
		if _, known := x.paths[p]; known {
			return
		}
		x.paths[p], x.last[path.Base(p)] = vfs.Stat{}, true
	}
}

// stat returns the attributes of the first inode at the fixed path p, as they were then if the path leads to another one
// now, or to none. present returns those of the present one.
func (x *fixedNames) stat(p string, present func() (vfs.Stat, error)) (vfs.Stat, error) {
	st, err := present() // without mu, which every lookup takes: the lower may answer late
	x.mu.Lock()
	defer x.mu.Unlock()
	first := x.paths[p]
	switch {
	case first.Ino == 0:
		if err == nil {
			x.paths[p] = st
		}
		return st, err
	case err == nil && st.Ino == first.Ino && st.Dev == first.Dev && st.BTime == first.BTime:
		return st, nil
	}
	return first, nil
}

// Fixes reports whether the entry called name in the lower directory dir always leads to its first inode, as [Tree.Hide]
// has requested for it.
func (t *Tree) Fixes(dir *Ref, name string) bool {
	t.fixed.mu.RLock()
	defer t.fixed.mu.RUnlock()
	if !t.fixed.last[name] || dir == nil {
		return false
	}
	_, fixed := t.fixed.paths[path.Join(dir.Path(), name)]
	return fixed
}

// TakeOver makes t continue for was, a tree of the same lower: with the files that were read too late, the versions of
// those that were read first, and the inodes of fixed names.
func (t *Tree) TakeOver(was *Tree) {
	t.takeLateReads(was)
	t.takeFirstReads(was)
	was.fixed.mu.RLock()
	defer was.fixed.mu.RUnlock()
	t.fixed.mu.Lock()
	defer t.fixed.mu.Unlock()
	t.fixed.paths, t.fixed.last = maps.Clone(was.fixed.paths), maps.Clone(was.fixed.last)
}
