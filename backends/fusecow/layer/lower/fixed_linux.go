package lower

import (
	"maps"
	"path"
	"sync"

	"github.com/snapfs/snapfs/internal/vfs"
)

// fixedNames are names that a tree always resolves to the inode that it found there first. The sandbox has something
// mounted at each, such as an empty directory over ~/.ssh. If the user of the lower replaces the file and a lookup
// then reports another inode, the kernel removes the mount in every mount namespace (d_invalidate in fs/dcache.c), and
// commands see the file.
type fixedNames struct {
	mu sync.RWMutex
	// paths maps each name, relative to the root of the lower, to the attributes of its first inode: the zero value
	// before the first lookup.
	paths map[string]vfs.Stat
	// last is the set of the last components of paths.
	last map[string]bool
}

// add makes the path p and the paths of its parent directories fixed names.
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

// stat returns the attributes of the first inode at the fixed path p: the current ones while p leads to that inode,
// and those of the first lookup otherwise. current looks the path up.
func (x *fixedNames) stat(p string, current func() (vfs.Stat, error)) (vfs.Stat, error) {
	st, err := current() // without mu, which every lookup takes: the lower may be slow
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

// Fixes reports whether the tree always resolves the entry called name in the lower directory dir to its first inode,
// because [Tree.Hide] got its path, or one below it, with two slashes.
func (t *Tree) Fixes(dir *Ref, name string) bool {
	t.fixed.mu.RLock()
	defer t.fixed.mu.RUnlock()
	if !t.fixed.last[name] || dir == nil {
		return false
	}
	_, fixed := t.fixed.paths[path.Join(dir.Path(), name)]
	return fixed
}

// TakeOver makes t continue the work of was, a tree of the same lower. It takes over the list of late reads, the
// versions of files at their first read, and the first inodes of fixed names.
func (t *Tree) TakeOver(was *Tree) {
	t.takeLateReads(was)
	t.takeFirstReads(was)
	was.fixed.mu.RLock()
	defer was.fixed.mu.RUnlock()
	t.fixed.mu.Lock()
	defer t.fixed.mu.Unlock()
	t.fixed.paths, t.fixed.last = maps.Clone(was.fixed.paths), maps.Clone(was.fixed.last)
}
