package diff

import (
	"slices"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A Moved stands, in the change that adds a renamed directory, for the entries of the directory that are not
// listed as changes of their own. See [Options.Fold].
type Moved struct {
	// From is the path of the directory in the old tree. Every entry below From that has no
	// change of its own is unchanged at the same path below the new one.
	From string
	// Entries is the number of these entries.
	Entries int
}

// Unlisted returns how many entries of a renamed directory this change stands for, besides its own path; 0
// for most changes.
func (c *Change) Unlisted() int {
	if c.Moved == nil {
		return 0
	}
	return c.Moved.Entries
}

// The folds of a comparison are the renamed directories that [Options.Fold] leaves unlisted, by their path in
// the old tree and by that in the new one.
type folds struct {
	all  []*fold
	ends [2]map[string]*fold
}

// A fold is one renamed directory of which a comparison lists only the entries that changed.
type fold struct {
	path    [2]string
	node    [2]*Node
	entries int
}

// has reports whether path, in the old or the new tree (side), is a renamed directory that is compared by
// itself.
func (f *folds) has(path string, side int) bool { return f.ends[side][path] != nil }

// around returns the innermost renamed directory that contains path in one of the two trees (side), or nil.
func (f *folds) around(path string, side int) *fold {
	for path != "." {
		path, _ = Split(path)
		if at := f.ends[side][path]; at != nil {
			return at
		}
	}
	return nil
}

// add adds the renamed directory at to the folds, those of which only the entries that changed are listed.
func (f *folds) add(at *fold) {
	f.all = append(f.all, at)
	for side, path := range at.path {
		f.ends[side][path] = at
	}
}

// remove removes the renamed directory at from the folds, so that all its entries are listed.
func (f *folds) remove(at *fold) {
	f.all = slices.DeleteFunc(f.all, func(x *fold) bool { return x == at })
	for side, path := range at.path {
		delete(f.ends[side], path)
	}
}

// foldRenamed finds, among the candidates places, the renamed directories with at least Options.Fold entries,
// and stores them in d.folds. It compares the two trees at the candidates inside these directories, and
// returns the other candidates.
func (d *walk) foldRenamed(places []snapshot.Candidate) ([]snapshot.Candidate, error) {
	w := d.workers[0]
	d.folds.ends = [2]map[string]*fold{{}, {}}
	for _, c := range places {
		if c.RenamedFrom == "" || d.folds.has(c.RenamedFrom, older) || w.opt.Skip != nil && (w.hidden(c.Path) || w.hidden(c.RenamedFrom)) {
			continue
		}
		at, err := w.foldAt(c)
		if err != nil {
			return nil, fail(c.Path, err)
		}
		if at != nil {
			d.folds.add(at)
		}
	}
	// Innermost first in the old tree: a removed directory's entries count for the one that contains it.
	for _, at := range slices.SortedFunc(slices.Values(d.folds.all), func(a, b *fold) int { return ComparePaths(b.path[older], a.path[older]) }) {
		var err error
		if at.entries, err = w.countEntries(at.path[older]); err != nil {
			return nil, fail(at.path[older], err)
		}
		if at.entries < d.opt.Fold {
			d.folds.remove(at)
		}
	}
	if len(d.folds.all) == 0 {
		return places, nil
	}
	return w.compareFolded(places)
}

// foldAt returns the renamed directory of the candidate c, or nil if its entries must be listed: it is not
// certain that both trees have it, each at one of the two paths only.
func (w *worker) foldAt(c snapshot.Candidate) (*fold, error) {
	at := &fold{path: [2]string{c.RenamedFrom, c.Path}}
	if w.skipped(c.RenamedFrom) || w.skipped(c.Path) {
		return nil, nil
	}
	for side, path := range at.path {
		p, errs := w.open(path, [2]bool{side == older, side == newer}, unix.O_RDONLY)
		st, foreign, err := w.inspect(p)
		if err == nil && p.has[side] {
			at.node[side], err = w.newNode(p.dir[side], "", &st[side], nil)
		}
		p.close()
		if errs[side] != nil || foreign || err != nil {
			return nil, err // one that cannot be opened is compared with everything else
		}
		there, err := w.exists(path, 1-side)
		if there || err != nil {
			return nil, err
		}
	}
	if w.opt.SameInodes && at.node[older].Ino != at.node[newer].Ino {
		return nil, nil
	}
	return at, nil
}

// exists reports whether one of the two trees (side) has a file at path.
func (w *worker) exists(path string, side int) (bool, error) {
	dir, name := Split(path)
	p, errs := w.open(dir, [2]bool{side == older, side == newer}, vfs.OPath)
	defer p.close()
	err := errs[side]
	if err == nil {
		_, err = vfs.Lstat(p.dir[side], name)
	}
	if gone(err) {
		return false, nil
	}
	return err == nil, err
}

// countEntries returns the number of entries below a directory of the old tree. It leaves out what
// Options.Skip excludes, and directories that were renamed themselves, with everything in both.
func (w *worker) countEntries(top string) (n int, err error) {
	for todo := []string{top}; len(todo) > 0; {
		if err := w.ctx.Err(); err != nil {
			return 0, err
		}
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		fd, err := vfs.OpenBeneathFD(w.root[older], dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if gone(err) || denied(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		err = vfs.EachEntry(fd, func(entry []byte, _ uint64, typ uint8) error {
			isDir := typ == unix.DT_DIR || typ == unix.DT_UNKNOWN && w.isDir(fd, string(entry))
			if !isDir && w.opt.Skip == nil {
				n++
				return nil
			}
			path := dir + "/" + string(entry)
			if w.skipped(path) || w.folds.has(path, older) {
				return nil
			}
			if n++; isDir {
				todo = append(todo, path)
			}
			return nil
		})
		unix.Close(fd)
		if err != nil {
			return 0, err
		}
	}
	return n, nil
}

func (w *worker) isDir(dir int, name string) bool {
	st, err := vfs.Lstat(dir, name)
	return err == nil && st.IsDir()
}

// compareFolded stores the renamed directories as changes, and compares the two trees at the candidates
// inside them. It returns the candidates outside of them.
func (w *worker) compareFolded(places []snapshot.Candidate) (rest []snapshot.Candidate, err error) {
	for _, at := range w.folds.all {
		w.found = append(w.found,
			found{Change: Change{Path: at.path[older], Kind: Deleted, Old: at.node[older]}},
			found{Change: Change{Path: at.path[newer], Kind: Added, New: at.node[newer], Moved: &Moved{From: at.path[older]}}})
	}
	whole := map[string]bool{} // by path in the new tree
	for _, c := range places {
		if w.folds.has(c.Path, older) || w.folds.has(c.Path, newer) {
			continue
		}
		ends := [2]string{c.Path, c.Path}
		if at := w.folds.around(c.Path, newer); at != nil {
			ends[older] = at.path[older] + c.Path[len(at.path[newer]):]
		} else if at := w.folds.around(c.Path, older); at != nil {
			ends[newer] = at.path[newer] + c.Path[len(at.path[older]):]
		} else {
			rest = append(rest, c)
			continue
		}
		if done, seen := whole[ends[newer]]; seen && (done || !c.Tree) || w.folds.walked(whole, ends[newer]) {
			continue
		}
		if whole[ends[newer]], err = w.compareEnds(ends, c.Tree); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// walked reports whether a walk of a directory above path in the new tree reaches path, so that path need not be
// compared by itself. A walk does not enter renamed directories. whole has the directories that are walked.
func (f *folds) walked(whole map[string]bool, path string) bool {
	for dir, _ := Split(path); dir != "." && !f.has(dir, newer); dir, _ = Split(dir) {
		if whole[dir] {
			return true
		}
	}
	return false
}

// compareEnds stores the entry of a renamed directory, at its path in the old and in the new tree (ends), as
// deleted and added. It does the same with everything below, and returns true, if tree is set or only one of
// them is a directory.
func (w *worker) compareEnds(ends [2]string, tree bool) (whole bool, _ error) {
	var pairs [2]dirPair
	var st [2]vfs.Stat
	var has [2]bool
	for side, path := range ends {
		if w.folds.has(path, side) || w.skipped(path) {
			continue
		}
		dir, name := Split(path)
		var errs [2]error
		pairs[side], errs = w.open(dir, [2]bool{side == older, side == newer}, vfs.OPath)
		defer pairs[side].close()
		err := errs[side]
		if err == nil {
			st[side], err = vfs.Lstat(pairs[side].dir[side], name)
		}
		if has[side] = err == nil; err != nil && !gone(err) {
			return false, fail(path, err)
		}
	}
	tree = tree || !has[older] || !has[newer] || !st[older].IsDir() || !st[newer].IsDir()
	for side, path := range ends {
		if !has[side] {
			continue
		}
		_, name := Split(path)
		err := w.addAlone(pairs[side], name, side, &st[side], 0)
		if err == nil && tree {
			w.pushSubtree(path, side, &st[side], 0)
		}
		if err != nil && !gone(err) {
			return false, fail(path, err)
		}
	}
	return tree, nil
}

// countFolded sets, in the changes that add renamed directories, the numbers of entries that no change lists.
func (d *walk) countFolded(changes []Change) {
	if len(d.folds.all) == 0 {
		return
	}
	for i := range changes {
		c := &changes[i]
		if c.Kind != Deleted || d.folds.has(c.Path, older) {
			continue
		}
		if at := d.folds.around(c.Path, older); at != nil {
			at.entries--
		}
	}
	for _, at := range d.folds.all {
		i, ok := slices.BinarySearchFunc(changes, at.path[newer], func(c Change, path string) int { return ComparePaths(c.Path, path) })
		if ok {
			changes[i].Moved.Entries = at.entries
		}
	}
}
