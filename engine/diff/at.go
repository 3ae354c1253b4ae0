package diff

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// At answers as [Trees] does, looking only at the places that touches names.
// They may be in any order, repeated, and more than what differs; where they
// miss a place that differs, so does the answer.
//
// Cost: some system calls a place, and a walk of what lies beneath a touched
// tree and beneath directories that one side alone has. Errors: those of Trees
// and those that touches yields, as they are.
func At(ctx context.Context, old, new *os.File, touches iter.Seq2[snapshot.Touch, error], opt Options) ([]Change, error) {
	defer runtime.KeepAlive(old)
	defer runtime.KeepAlive(new)
	places, err := gather(touches)
	if err != nil {
		return nil, err
	}
	d, err := newWalk(ctx, old, new, opt)
	if err != nil {
		return nil, err
	}
	if err := d.visit(places); err != nil {
		return nil, err
	}
	if err := d.drain(); err != nil {
		return nil, err
	}
	return d.changes(), nil
}

// gather sorts the touches and names each place once.
func gather(touches iter.Seq2[snapshot.Touch, error]) ([]snapshot.Touch, error) {
	var places []snapshot.Touch
	for t, err := range touches {
		if err != nil {
			return nil, err
		}
		if !fs.ValidPath(strings.ToValidUTF8(t.Path, "?")) {
			return nil, &errs.Error{Op: op, Path: t.Path, Kind: errs.ErrCorrupt, Err: errors.New("not a path beneath the tree")}
		}
		places = append(places, t)
	}
	slices.SortFunc(places, func(a, b snapshot.Touch) int {
		switch {
		case Less(a.Path, b.Path):
			return -1
		case Less(b.Path, a.Path):
			return 1
		case a.Tree && !b.Tree: // the one that says more is the one kept
			return -1
		case b.Tree && !a.Tree:
			return 1
		case b.Named && !a.Named:
			return -1
		case a.Named && !b.Named:
			return 1
		}
		return 0
	})
	return slices.CompactFunc(places, func(a, b snapshot.Touch) bool { return a.Path == b.Path }), nil
}

// few places are not worth a second thread.
const few = 32

// visit compares each place. A place beneath one that the other thread leaves to
// drain is compared twice, and counts once.
func (d *walk) visit(places []snapshot.Touch) error {
	w := d.workers[0]
	d.unnamed = w.skippedIn(places)
	half := 0
	var other *worker
	var err, otherErr error
	var both sync.WaitGroup
	if len(places) >= few {
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
	return d.list()
}

// list lists the directories that were taken to be named and have names that
// this process may not look at.
func (d *walk) list() error {
	for _, w := range d.workers {
		d.named = append(d.named, w.named...)
	}
	for _, w := range d.workers {
		for _, dir := range w.denied {
			i := slices.Index(d.named, dir)
			if i < 0 {
				continue
			}
			d.named = slices.Delete(d.named, i, i+1)
			if err := w.dir(task{path: dir, on: [2]bool{true, true}, try: 1}); err != nil {
				return err
			}
		}
	}
	return nil
}

// visit compares each place. It runs before drain, so that the subtrees it leaves
// to drain are known when it comes to places beneath them.
func (w *worker) visit(places []snapshot.Touch) error {
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
			err = w.roots(t)
		} else {
			err = w.touch(&open, t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// skippedIn are the directories in which a touched name is left out: whether they
// have the same names is not told by the changes of those.
func (w *worker) skippedIn(places []snapshot.Touch) map[string]bool {
	dirs := map[string]bool{}
	for _, t := range places {
		if t.Path != "." && w.skipped(t.Path) {
			dir, _ := split(t.Path)
			dirs[dir] = true
		}
	}
	return dirs
}

// touch compares a place below the root.
func (w *worker) touch(open *parents, t snapshot.Touch) error {
	dir, name := split(t.Path)
	parent, failures := open.get(w, dir)
	if first(failures) != nil {
		return w.locate(t.Path, t.Tree, 0)
	}
	if t.Named && !t.Tree && !w.unnamed[t.Path] {
		if done, err := w.alone(parent, name); done || err != nil {
			return fail(t.Path, err)
		}
	}
	return w.node(parent, name, t.Tree, 0)
}

// alone compares a directory of both sides without listing it, and says whether
// that can be done. Its time counts only where the same names are in it, which
// the changes of those tell in the end.
func (w *worker) alone(p place, name string) (done bool, err error) {
	var st [2]vfs.Stat
	for i := range st {
		if st[i], err = vfs.Lstat(p.fd(i), name); err != nil || !st[i].IsDir() || st[i].MountRoot && name != "" {
			return false, nil //nolint:nilerr // node looks again, and tells
		}
	}
	what, err := w.differ(p, name, &st)
	switch {
	case gone(err):
		return false, nil
	case err != nil || what == 0:
		return true, err
	}
	if what&Time != 0 {
		w.named = append(w.named, p.join(name))
	}
	return true, w.modified(p, name, &st, what, 0)
}

// parents are the two directories that touched places lay in last. Going down a
// tree and on to its next branch, the next place mostly lies in one of them.
type parents [2]place

// get opens a directory, or finds it open. It stays the list's.
func (s *parents) get(w *worker, dir string) (place, [2]error) {
	for i, p := range s {
		if p.path == dir && p.has[older] {
			if i > 0 {
				s[0], s[1] = s[1], s[0]
			}
			return p, [2]error{}
		}
	}
	p, failures := w.parent(dir)
	if first(failures) != nil {
		p.close()
		return place{}, failures
	}
	s[1].close()
	s[0], s[1] = p, s[0]
	return p, failures
}

func (s *parents) close() {
	for _, p := range s {
		p.close()
	}
}

// roots compares the roots.
func (w *worker) roots(touch snapshot.Touch) error {
	t := task{path: ".", on: [2]bool{true, true}, deep: touch.Tree}
	if touch.Tree {
		w.cover(".")
		w.push(t)
		return nil
	}
	if touch.Named && !w.unnamed["."] {
		p, failures := w.open(".", t.on, vfs.OPath)
		defer p.close()
		if first(failures) == nil {
			if done, err := w.alone(p, ""); done || err != nil {
				return fail(".", err)
			}
		}
	}
	return w.dir(t)
}

// isCovered reports whether a path or one above it is walked whole.
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

// hidden reports whether a path lies in a subtree that is left out.
func (w *worker) hidden(path string) bool {
	for i := range len(path) {
		if path[i] == '/' && w.skipped(path[:i]) {
			return true
		}
	}
	return false
}
