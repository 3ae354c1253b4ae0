package diff

import (
	"maps"
	"slices"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

func (w *worker) skipped(path string) bool { return w.opt.Skip != nil && w.opt.Skip(path) }

// compare compares the old and the new tree at name in the directory p, and stores the difference. If both
// have a directory there, deep also walks it; otherwise only its names are compared. try is the number of
// retries so far.
func (w *worker) compare(p dirPair, name string, deep bool, try int) error {
	if w.opt.Skip != nil && w.skipped(p.join(name)) {
		return nil
	}
	for {
		err := w.compareOnce(p, name, deep, try)
		if !gone(err) {
			return fail(p.join(name), err)
		}
		if try++; try > maxTries {
			return keepsChanging(p.join(name))
		}
	}
}

// compareOnce compares the old and the new tree at name in the directory p once, as compare does. If
// gone(err) is true for its error, the file was replaced meanwhile and the caller tries again.
func (w *worker) compareOnce(p dirPair, name string, deep bool, try int) error {
	var st [2]vfs.Stat
	var has [2]bool
	var errs [2]error
	for i, there := range p.has {
		if !there {
			continue
		}
		st[i], errs[i] = vfs.Lstat(p.dir[i], name)
		has[i] = errs[i] == nil
		if gone(errs[i]) {
			errs[i] = nil
		}
	}
	switch {
	case denied(errs[older]) && denied(errs[newer]):
		if w.covered != nil {
			w.denied = append(w.denied, p.path)
		}
		return nil
	case errs[older] != nil || errs[newer] != nil:
		return first(errs)
	case !has[older] && !has[newer]:
		w.recordNothing(p.join(name), try)
		return nil
	case !has[newer]:
		return w.addOneSided(p, name, older, &st[older], try)
	case !has[older]:
		return w.addOneSided(p, name, newer, &st[newer], try)
	case !st[older].IsDir() || !st[newer].IsDir():
		return w.compareBoth(p, name, &st, try)
	}
	t := task{path: p.join(name), on: [2]bool{true, true}, deep: deep, try: try}
	if !deep {
		return w.runTask(t)
	}
	w.markCovered(t.path)
	w.push(t)
	return nil
}

// recordNothing stores that neither tree has anything at a path which changed during the comparison, if an
// earlier try found something there. The number try makes this result replace the earlier one.
func (w *worker) recordNothing(path string, try int) {
	if try > 0 {
		w.found = append(w.found, found{Change: Change{Path: path}, try: try})
	}
}

func (w *worker) markCovered(path string) {
	if w.covered != nil {
		w.covered[path] = true
	}
}

// addOneSided stores that only the old or only the new tree (side) has the file name in the directory p: it is
// deleted or added. It queues the subtree below a directory to be walked. st is the file's stat, and try the number
// of retries so far.
func (w *worker) addOneSided(p dirPair, name string, side int, st *vfs.Stat, try int) error {
	path := p.join(name)
	if w.folds.has(path, side) {
		return nil // already stored as a renamed directory
	}
	if err := w.addAlone(p, name, side, st, try); err != nil {
		return err
	}
	w.markCovered(path)
	w.pushSubtree(path, side, st, try)
	return nil
}

// addAlone stores that the file name in the directory p is deleted (only the old tree has it) or added (only the new
// one): side says which. It stores nothing that is below a directory. st is the file's stat, and try the number of
// retries so far.
func (w *worker) addAlone(p dirPair, name string, side int, st *vfs.Stat, try int) error {
	n, err := w.newNode(p.dir[side], name, st, nil)
	if err != nil {
		return err
	}
	c := Change{Path: p.join(name), Kind: Added, New: n}
	if side == older {
		c = Change{Path: c.Path, Kind: Deleted, Old: n}
	}
	w.found = append(w.found, found{c, try})
	return nil
}

// pushSubtree queues the directory at path, which only one tree (side) has, to be walked; it does nothing if the
// path, with the stat st, is no directory. try is the number of retries so far.
func (w *worker) pushSubtree(path string, side int, st *vfs.Stat, try int) {
	if st.IsDir() {
		t := task{path: path, deep: true, try: try}
		t.on[side] = true
		w.push(t)
	}
}

// compareBoth compares a file, name in the directory p, that both trees have, and stores the difference. It is not
// for a directory in both trees. st has the stat of each, and try is the number of retries so far.
func (w *worker) compareBoth(p dirPair, name string, st *[2]vfs.Stat, try int) error {
	what, err := Type, error(nil)
	var attrs *[2]xattrs
	if st[older].Mode&unix.S_IFMT == st[newer].Mode&unix.S_IFMT {
		if w.opt.OneFilesystem && (st[older].MountRoot || st[newer].MountRoot) {
			return nil
		}
		what, attrs, err = w.differences(p, name, st)
	} else {
		w.markCovered(p.join(name))
		w.pushSubtree(p.join(name), older, &st[older], try)
		w.pushSubtree(p.join(name), newer, &st[newer], try)
	}
	if err != nil || what == 0 && try == 0 && !w.linksMayDiffer(st) {
		return err
	}
	return w.addModified(p, name, st, attrs, what, try)
}

// addModified stores that a file, name in the directory p, is modified. Both trees have it; what are the aspects
// (such as content) that differ. attrs are its extended attributes in each tree, nil if they were not read. try is
// the number of retries so far.
func (w *worker) addModified(p dirPair, name string, st *[2]vfs.Stat, attrs *[2]xattrs, what Aspect, try int) error {
	var nodes [2]*Node
	for i := range nodes {
		var x *xattrs
		if attrs != nil {
			x = &attrs[i]
		}
		var err error
		if nodes[i], err = w.newNode(p.dir[i], name, &st[i], x); err != nil {
			return err
		}
	}
	c := Change{Path: p.join(name), Kind: Modified, What: what, Old: nodes[older], New: nodes[newer]}
	w.found = append(w.found, found{c, try})
	return nil
}

// provenEqual reports whether the inode numbers and times of a file in the two trees prove alone that it is
// equal, so that its content need not be read.
func (w *worker) provenEqual(st *[2]vfs.Stat) bool {
	a, b := &st[older], &st[newer]
	if !w.opt.SameInodes || a.Ino != b.Ino || a.CTime != b.CTime || a.Size != b.Size || a.Mode != b.Mode {
		return false
	}
	return w.opt.Taken.IsZero() || vfs.ChangedBefore(a.CTime.Time(), w.opt.Taken.Add(-Racy))
}

// differences returns the aspects, such as content or mode, in which a file differs between the old and the
// new tree: name in the directory p, or p itself if name is "". Both are of one type. It also returns
// the extended attributes in each tree, if it had to read them.
func (w *worker) differences(p dirPair, name string, st *[2]vfs.Stat) (Aspect, *[2]xattrs, error) {
	a, b := &st[older], &st[newer]
	if a.Ino == b.Ino && a.Dev == b.Dev || w.provenEqual(st) {
		return 0, nil, nil
	}
	var what Aspect
	set := func(aspect Aspect, differs bool) {
		if differs {
			what |= aspect
		}
	}
	set(Mode, a.Mode != b.Mode)
	set(Owner, a.UID != b.UID || a.GID != b.GID)
	set(Time, a.MTime != b.MTime)
	var differs bool
	var err error
	switch a.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		differs, err = w.contentDiffers(p, name, st)
		set(Content, differs)
	case unix.S_IFLNK:
		differs, err = targetsDiffer(p, name, st)
		set(Target, differs)
	case unix.S_IFCHR, unix.S_IFBLK:
		set(Device, a.Rdev != b.Rdev)
	}
	if err != nil {
		return 0, nil, err
	}
	attrs, differs, err := w.compareXattrs(p, name)
	set(Xattrs, differs)
	return what, &attrs, err
}

func targetsDiffer(p dirPair, name string, st *[2]vfs.Stat) (bool, error) {
	var target [2]string
	for i := range target {
		var err error
		if target[i], err = readlink(p.dir[i], name, st[i].Size); err != nil {
			return false, err
		}
	}
	return target[older] != target[newer], nil
}

// compareXattrs returns the extended attributes of a file, name in the directory p, in the two compared trees, and
// whether they differ.
func (w *worker) compareXattrs(p dirPair, name string) (x [2]xattrs, differ bool, err error) {
	for i := range x {
		if x[i], err = w.xattrs(p.dir[i], name); err != nil {
			return x, false, err
		}
	}
	for i := range x {
		for _, n := range x[i].denied {
			if _, readable := x[1-i].values[n]; readable {
				return x, false, unix.EACCES
			}
		}
	}
	return x, !maps.Equal(x[older].values, x[newer].values) || !slices.Equal(x[older].denied, x[newer].denied), nil
}
