package layer

import (
	"context"
	"errors"
	"slices"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/lower"
	"golang.org/x/sys/unix"
)

// A Borrowed is a changed inode whose content is still read from the lower directory tree, under another
// name. Its file must be copied before the lower may change there.
type Borrowed struct {
	// Path is the present path; From is the path in the lower. They are equal for a file that
	// has lost one of several names whose other names are unknown.
	Path, From string
	Dir        bool
}

// FindBorrowed returns the inodes that the layers of o changed and whose content is still read from the
// lower. It omits those that are at their own place inside a borrowed directory. A sparse upper with a source
// in the lower is borrowed even under its own name. Cost: in proportion to the changes in the layers. Errors
// are those of [Open].
func FindBorrowed(o Options) (list []Borrowed, err error) {
	f, err := openTables(o)
	if err != nil {
		return nil, err
	}
	defer f.release()
	a := newPathIndex(f)
	for _, n := range f.inodes {
		if n == f.root || n.lower == nil || !n.changed || n.nlink == 0 {
			continue
		}
		from, names := n.lower.Path(), a.paths(n)
		switch {
		case n.isDir():
			if len(names) > 0 && !a.atLowerName(n) {
				list = append(list, Borrowed{names[0], from, true})
			}
		case n.readsLower():
			if n.sparse != nil || !slices.Contains(names, from) {
				list = append(list, Borrowed{append(names, from)[0], from, false})
			}
		}
	}
	return list, nil
}

// atLowerName reports whether the directory n still has the name and the parent that it has in the lower.
func (a *pathIndex) atLowerName(n *inode) bool {
	return !slices.ContainsFunc(a.names[n], func(k nameKey) bool {
		return k.dir.lower == nil || !n.lower.IsEntry(k.dir.lower, k.name)
	})
}

// readsLower reports whether some content of the file n is still read from the lower, not from a layer.
func (n *inode) readsLower() bool {
	return n.regular() && (n.layer == logfile.InLower || n.sparse != nil && n.sparse.Sources[len(n.sparse.Sources)-1].Layer == logfile.InLower)
}

// Detach copies up everything that the dirty inodes at the given lower paths still read from the lower, so
// that the lower may change: content of files, and directories with all that is in them. It leaves out what
// the lower no longer has. The filesystem must not be mounted. An error does not undo what was copied so far;
// that changes nothing visible.
func (f *FS) Detach(ctx context.Context, paths map[string]bool) error {
	f.copyUpLimit = wholeFile
	f.detaching = true
	f.mu.RLock()
	var all []*inode
	for _, n := range f.inodes {
		if n.changed && n.nlink > 0 && n.lower != nil && n != f.root && paths[n.lower.Path()] {
			all = append(all, n)
		}
	}
	f.mu.RUnlock()
	r := detacher{FS: f, ctx: ctx}
	for _, n := range all {
		if _, err := r.detach(n); err != nil {
			return err
		}
	}
	r.splitLinks()
	return nil
}

// A detacher is the state of one [FS.Detach], which copies up content that is still read from the lower.
type detacher struct {
	*FS
	ctx context.Context
	// linked are clean files with several hard links that the detacher has made dirty.
	linked []*inode
}

// detach copies up the inode n and all in it, for [FS.Detach]. whole is false if the lower lacks some of it.
func (f *detacher) detach(n *inode) (whole bool, err error) {
	if err := f.ctx.Err(); err != nil {
		return false, err
	}
	f.mu.Lock()
	err = f.makeDirty(n)
	f.mu.Unlock()
	switch {
	case err != nil:
	case n.isDir():
		return f.detachDir(n)
	case n.readsLower():
		err = f.copyContent(n)
	}
	if errors.Is(err, unix.ESTALE) {
		return false, nil
	}
	return err == nil, err
}

// copyContent copies the content of the file n to the top layer, so that nothing is read from below.
func (f *detacher) copyContent(n *inode) error {
	if top := f.top(); n.layer != top {
		if err := f.copyUp(n, top, wholeFile); err != nil {
			return err
		}
	}
	p := n.sparse
	if p == nil {
		return nil
	}
	return f.withUpper(n, wholeFile, func(fd int) error {
		reserved, err := f.copySparseReserving(fd, n, p, min(n.size, p.Shown()))
		if err != nil {
			return err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		n.sparse = nil
		f.recharge(n, fd, reserved)
		return f.makeDirty(n)
	})
}

// detachDir adds to the directory n a name for each lower entry, detaches those, and drops n's reference to
// the lower. whole is false if the lower no longer has all of it.
func (f *detacher) detachDir(n *inode) (whole bool, err error) {
	if n.lower == nil {
		return true, nil
	}
	list, err := f.listLower(n)
	if errors.Is(err, unix.ESTALE) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	whole = true
	for _, e := range list {
		if e.Name == "." || e.Name == ".." {
			continue
		}
		one, err := f.detachName(n, e.Name)
		if err != nil {
			return false, err
		}
		whole = whole && one
	}
	if !whole {
		return false, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fds.Drop(lower.DirKey(n.lower))
	n.lower = nil
	return true, f.makeDirty(n)
}

// detachName adds the name of a lower entry to the directory dir, and copies up its inode as detach does.
func (f *detacher) detachName(dir *inode, name string) (whole bool, err error) {
	f.mu.Lock()
	n, err := f.lookup(dir, name)
	if err == nil && n != nil && n.lower != nil {
		if !n.changed && n.regular() && n.nlink > 1 {
			f.linked = append(f.linked, n)
		}
		err = f.makeDirty(n)
	}
	if _, named := dir.entries[name]; err == nil && n != nil && !named {
		f.addName(dir, name, n)
	}
	f.mu.Unlock()
	if errors.Is(err, unix.ESTALE) {
		return false, nil
	}
	if err != nil || n == nil || n.lower == nil || n.isDir() && n.lower.Dir != dir.lower && n.lower.Dir.Path() != dir.lower.Path() {
		return err == nil, err // a whiteout, an inode created here, or one that was renamed to this name
	}
	return f.detach(n)
}

// splitLinks separates the detached files from hard links that are not in the inode table: only the names in
// the table stay links of one file. In the tree that they are promoted to they are separate files too.
func (f *detacher) splitLinks() {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := map[*inode]uint32{}
	for _, n := range f.linked {
		names[n] = 0
	}
	for _, dir := range f.inodes {
		for _, n := range dir.entries {
			if _, linked := names[n]; linked {
				names[n]++
			}
		}
	}
	for n, have := range names {
		if have < n.nlink && !n.readsLower() {
			n.lower, n.nlink = nil, have
			f.markDirty(n)
		}
	}
}
