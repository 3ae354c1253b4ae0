package diff

import (
	"slices"
	"strings"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// maxTries is how often a path that other processes change during the comparison of two trees is compared
// again, before it is an error.
const maxTries = 8

// runTask compares one directory of a task: it opens the directory in those of the two trees that have it,
// compares it and its entries, and closes it.
func (w *worker) runTask(t task) error {
	if err := w.ctx.Err(); err != nil {
		return fail(t.path, err)
	}
	p, errs := w.open(t.path, t.on, unix.O_RDONLY)
	defer p.close()
	switch {
	case gone(errs[older]) || gone(errs[newer]):
		return w.compareAbove(t.path, true, t.try+1)
	case denied(errs[older]) && denied(errs[newer]):
		return w.compareUnreadable(t)
	case errs[older] != nil || errs[newer] != nil:
		return fail(t.path, first(errs))
	}
	st, foreign, err := w.inspect(p)
	if err != nil || foreign {
		return fail(t.path, err)
	}
	settled := t.on[older] && t.on[newer] && w.provenEqual(&st)
	if err := w.listNames(p, settled); gone(err) {
		return w.compareAbove(t.path, true, t.try+1)
	} else if err != nil {
		return fail(t.path, err)
	}
	if t.on[older] && t.on[newer] {
		if err := w.compareDir(p, &st, t.try, w.align()); err != nil {
			return fail(t.path, err)
		}
	}
	return w.compareContent(p, t)
}

// compareUnreadable compares the metadata of a directory whose entries this process may not list in the old
// or in the new tree.
func (w *worker) compareUnreadable(t task) error {
	p, errs := w.open(t.path, t.on, vfs.OPath)
	defer p.close()
	if denied(errs[older]) && denied(errs[newer]) {
		return nil
	}
	if err := first(errs); err != nil {
		return fail(t.path, err)
	}
	st, foreign, err := w.inspect(p)
	if err != nil || foreign {
		return fail(t.path, err)
	}
	return fail(t.path, w.compareDir(p, &st, t.try, true))
}

// listNames reads the names that a directory has in the old and in the new tree into w.names. settled means
// that the directory is proven equal and has the same names in both, so that only one is read.
func (w *worker) listNames(p dirPair, settled bool) error {
	for i, has := range p.has {
		var err error
		switch {
		case !has:
			w.names[i] = nil
		case settled && i == newer:
			w.names[i] = w.names[older]
		default:
			if w.names[i], err = vfs.Entries(p.dir[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// align sorts the names that a directory has in each tree and reports whether they are the same. It does not
// sort lists that are in the same order already, as in two snapshots of one filesystem.
func (w *worker) align() bool {
	same := func(a, b vfs.Entry) bool { return a.Name == b.Name }
	a, b := w.names[older], w.names[newer]
	if slices.EqualFunc(a, b, same) {
		return true
	}
	vfs.SortEntries(a)
	vfs.SortEntries(b)
	return slices.EqualFunc(a, b, same)
}

// compareDir compares the metadata of a directory that both trees have, not its entries. sameNames says whether it
// has the same names in both: only then its time counts. try is the number of retries so far.
func (w *worker) compareDir(p dirPair, st *[2]vfs.Stat, try int, sameNames bool) error {
	what, attrs, err := w.differences(p, "", st)
	if !sameNames {
		what &^= Time
	}
	if err != nil || what == 0 && try == 0 {
		return err
	}
	return w.addModified(p, "", st, attrs, what, try)
}

// compareContent compares the entries that a directory has in the old and in the new tree, name by name.
// w.names has the sorted names.
func (w *worker) compareContent(p dirPair, t task) error {
	a, b := w.names[older], w.names[newer]
	for n := 0; len(a) > 0 || len(b) > 0; n++ {
		if n%256 == 255 && w.ctx.Err() != nil {
			return fail(p.path, w.ctx.Err())
		}
		var err error
		switch order := compareHeads(a, b); {
		case order < 0:
			err = w.compare(p.only(older), a[0].Name, true, t.try)
			a = a[1:]
		case order > 0:
			err = w.compare(p.only(newer), b[0].Name, true, t.try)
			b = b[1:]
		default:
			err = w.comparePair(p, a[0], b[0], t)
			a, b = a[1:], b[1:]
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func compareHeads(a, b []vfs.Entry) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return strings.Compare(a[0].Name, b[0].Name)
}

// comparePair compares a name that a directory has in both trees. If the task is not deep, only names are
// compared, and the nodes only if their types or inodes differ.
func (w *worker) comparePair(p dirPair, a, b vfs.Entry, t task) error {
	switch {
	case !t.deep && a.Type == b.Type && (a.Ino == b.Ino || !w.opt.SameInodes):
		return nil
	case a.Type == unix.DT_DIR && b.Type == unix.DT_DIR:
		path := p.join(a.Name)
		if !w.skipped(path) {
			w.push(task{path: path, on: [2]bool{true, true}, deep: true, try: t.try})
		}
		return nil
	}
	return w.compare(p, a.Name, true, t.try)
}
