package diff

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// At compares two trees as [Trees] does, but only at the paths in touches, a list of those that may differ.
// They may be in any order, repeated, and include equal paths. A difference at a path that touches omits is
// missed. It does not modify touches.
//
// Cost: some system calls for each path, and a walk below each path marked as a whole tree and below
// directories that only one side has. Errors: those of Trees, and ErrCorrupt for a path outside the trees.
func At(ctx context.Context, old, new *os.File, touches []snapshot.Candidate, opt Options) ([]Change, error) {
	defer runtime.KeepAlive(old)
	defer runtime.KeepAlive(new)
	places, err := sortTouches(touches)
	if err != nil {
		return nil, err
	}
	d, err := newWalk(ctx, old, new, opt)
	if err != nil {
		return nil, err
	}
	if opt.Fold > 0 {
		if places, err = d.foldRenamed(places); err != nil {
			return nil, err
		}
	}
	if err := d.visit(places); err != nil {
		return nil, err
	}
	if err := d.drain(); err != nil {
		return nil, err
	}
	return d.changes(), nil
}

// sortTouches sorts the listed paths at which two trees are compared. Of several entries for one path it
// returns only the one that covers most.
func sortTouches(touches []snapshot.Candidate) ([]snapshot.Candidate, error) {
	for _, t := range touches {
		if !fs.ValidPath(strings.ToValidUTF8(t.Path, "?")) {
			return nil, &errs.Error{Op: op, Path: t.Path, Kind: errs.ErrCorrupt, Err: errors.New("path is not inside the tree")}
		}
	}
	places := slices.Clone(touches)
	slices.SortFunc(places, func(a, b snapshot.Candidate) int {
		if order := ComparePaths(a.Path, b.Path); order != 0 {
			return order
		}
		switch {
		case a.Tree && !b.Tree: // the entry that covers more comes first and stays
			return -1
		case b.Tree && !a.Tree:
			return 1
		case b.Named && !a.Named:
			return -1
		case a.Named && !b.Named:
			return 1
		}
		return cmp.Compare(b.RenamedFrom, a.RenamedFrom) // one without it says less
	})
	return slices.CompactFunc(places, func(a, b snapshot.Candidate) bool { return a.Path == b.Path }), nil
}

// minParallel is how many paths must be compared for At, which compares two trees at listed paths, to use a
// second thread; for fewer, starting it costs more than it saves.
const minParallel = 32

// visit compares the trees at each path in places, on one or two threads. A path inside a subtree that is
// walked later as a whole may be compared twice, and counts once.
func (d *walk) visit(places []snapshot.Candidate) error {
	w := d.workers[0]
	d.mustList = w.skippedIn(places)
	half := 0
	var other *worker
	var err, otherErr error
	var both sync.WaitGroup
	if len(places) >= minParallel {
		half = len(places) / 2
		other = d.worker()
		both.Go(func() { otherErr = other.visit(places[half:]) })
		err = w.visit(places[:half])
		both.Wait()
	} else {
		err = w.visit(places)
	}
	if err == nil {
		err = otherErr
	}
	if err != nil {
		return err
	}
	return d.listDenied()
}

// listDenied compares the names of some directories completely, at the end of a comparison at listed paths.
// These are directories in which this process may not stat one of the listed names.
func (d *walk) listDenied() error {
	for _, w := range d.workers {
		d.unlisted = append(d.unlisted, w.unlisted...)
	}
	for _, w := range d.workers {
		for _, dir := range w.denied {
			i := slices.Index(d.unlisted, dir)
			if i < 0 {
				continue
			}
			d.unlisted = slices.Delete(d.unlisted, i, i+1)
			if err := w.runTask(task{path: dir, on: [2]bool{true, true}, try: 1}); err != nil {
				return err
			}
		}
	}
	return nil
}

// visit compares the trees at each of places, paths that may have changed. It runs before subtrees are walked
// as a whole, so that it can skip paths inside them.
func (w *worker) visit(places []snapshot.Candidate) error {
	w.covered = map[string]bool{}
	defer func() { w.covered = nil }()
	var open parents
	defer open.close()
	for _, t := range places {
		if err := w.ctx.Err(); err != nil {
			return fail(t.Path, err)
		}
		if w.isCovered(t.Path) || w.opt.Skip != nil && w.hidden(t.Path) {
			continue
		}
		var err error
		if t.Path == "." {
			err = w.compareRoots(t)
		} else {
			err = w.compareTouched(&open, t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// skippedIn returns the directories that contain a name of places, the paths to compare, which Options.Skip
// excludes. For these directories the found changes do not show whether both trees have the same names.
func (w *worker) skippedIn(places []snapshot.Candidate) map[string]bool {
	dirs := map[string]bool{}
	for _, t := range places {
		if t.Path != "." && w.skipped(t.Path) {
			dir, _ := Split(t.Path)
			dirs[dir] = true
		}
	}
	return dirs
}

// compareTouched compares the files of the old and the new tree at the path of t, a path that may have
// changed and is not the root. open caches the parent directories.
func (w *worker) compareTouched(open *parents, t snapshot.Candidate) error {
	dir, name := Split(t.Path)
	parent, failures := open.get(w, dir)
	if first(failures) != nil {
		return w.compareAbove(t.Path, t.Tree, 0)
	}
	if t.Named && !t.Tree && !w.mustList[t.Path] {
		if done, err := w.compareUnlisted(parent, name); done || err != nil {
			return fail(t.Path, err)
		}
	}
	return w.compare(parent, name, t.Tree, 0)
}

// compareUnlisted compares a directory of both trees without listing its names; done is false if that is not
// possible. Whether a difference in its time counts is decided at the end, when all changes of its names are
// known.
func (w *worker) compareUnlisted(p dirPair, name string) (done bool, err error) {
	var st [2]vfs.Stat
	for i := range st {
		if st[i], err = vfs.Lstat(p.dir[i], name); err != nil || !st[i].IsDir() || st[i].MountRoot && name != "" {
			return false, nil //nolint:nilerr //nolint:nilerr // node compares again and returns the error
		}
	}
	what, attrs, err := w.differences(p, name, &st)
	switch {
	case gone(err):
		return false, nil
	case err != nil || what == 0:
		return true, err
	}
	if what&Time != 0 {
		w.unlisted = append(w.unlisted, p.join(name))
	}
	return true, w.addModified(p, name, &st, attrs, what, 0)
}

// parents caches, open, the two parent directories that At, a comparison at listed paths, used last. In a
// sorted list, the next path is mostly in one of them.
type parents [2]dirPair

// get returns the directory dir open in both trees, with an error for each. It comes from the cache if
// possible; the caller must not close it. Otherwise it walks the path from the nearest cached directory above dir, so
// that n listed directories inside one another take n steps and not a walk from the root for each.
func (s *parents) get(w *worker, dir string) (dirPair, [2]error) {
	for i, p := range s {
		if p.path == dir && p.has[older] {
			if i > 0 {
				s[0], s[1] = s[1], s[0]
			}
			return p, [2]error{}
		}
	}
	p, failures := w.parent(dir, s.above(dir))
	if first(failures) != nil {
		p.close()
		return dirPair{}, failures
	}
	s[1].close()
	s[0], s[1] = p, s[0]
	return p, failures
}

// above returns the cached directory that is nearest above dir, or nil.
func (s *parents) above(dir string) (nearest *dirPair) {
	for i := range s {
		p := &s[i]
		if p.has[older] && strings.HasPrefix(dir, p.path+"/") && (nearest == nil || len(p.path) > len(nearest.path)) {
			nearest = p
		}
	}
	return nearest
}

func (s *parents) close() {
	for _, p := range s {
		p.close()
	}
}

// compareRoots compares the root directories of the two trees. touch is the root's entry in the list of paths
// that may have changed; if its Tree is set, everything below the roots is compared, too.
func (w *worker) compareRoots(touch snapshot.Candidate) error {
	t := task{path: ".", on: [2]bool{true, true}, deep: touch.Tree}
	if touch.Tree {
		w.markCovered(".")
		w.push(t)
		return nil
	}
	if touch.Named && !w.mustList["."] {
		p, failures := w.open(".", t.on, vfs.OPath)
		defer p.close()
		if first(failures) == nil {
			if done, err := w.compareUnlisted(p, ""); done || err != nil {
				return fail(".", err)
			}
		}
	}
	return w.runTask(t)
}

// isCovered reports whether a path is in a subtree that is walked as a whole, so that it need not be compared
// by itself.
func (w *worker) isCovered(path string) bool {
	if w.covered["."] {
		return true
	}
	for i := range len(path) {
		if path[i] == '/' && w.covered[path[:i]] {
			return true
		}
	}
	return w.covered[path]
}

// hidden reports whether a path is below one that Options.Skip excludes from the comparison.
func (w *worker) hidden(path string) bool {
	for i := range len(path) {
		if path[i] == '/' && w.skipped(path[:i]) {
			return true
		}
	}
	return false
}
