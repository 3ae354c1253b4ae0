package promote

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// work is a promotion being carried out.
type work struct {
	record
	t       Target
	from    Source
	p       *planner
	real    dirs
	journal *os.File
	built   map[string]spot
	dev     uint64 // of the target
}

func newWork(t Target, from Source, p *planner) *work {
	w := &work{t: t, from: from, p: p, real: dirs{root: t.Root}, built: map[string]spot{}}
	w.path, w.ops, w.stages, w.id = t.Path, p.ops, p.stages, newID()
	for _, pl := range p.places {
		w.places = append(w.places, pl)
	}
	// From the bottom up, so that a directory is closed after what lies in it.
	slices.SortFunc(w.places, func(a, b *place) int {
		if diff.Less(a.path, b.path) {
			return 1
		}
		return -1
	})
	for _, s := range w.stages {
		s.name = stagePrefix + w.id
	}
	return w
}

// newID names a promotion by its process, and by chance.
func newID() string {
	self, err := proc.Self()
	if err != nil {
		self.PID = os.Getpid()
	}
	return strconv.FormatInt(int64(self.PID), 36) + "-" + strconv.FormatUint(self.Start, 36) + "-" + strconv.FormatUint(rand.Uint64(), 36)
}

func (w *work) close() {
	w.real.close()
	for _, s := range w.stages {
		s.close()
	}
	if w.journal != nil {
		w.journal.Close()
	}
}

// run does everything up to the commit.
func (w *work) run(ctx context.Context) error {
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"begin the journal", w.begin},
		{"make the stages", w.makeStages},
		{"settle the source", w.settleSource},
		{"build the new versions", w.build},
		{"sync the stages", w.secure},
		{"widen directories", w.widen},
		{"move", w.move},
		{"alter", w.alter},
		{"close directories", w.narrow},
		{"sync the target", w.syncTarget},
		{"look again", w.lookAgain},
		{"commit", w.commitAll},
	} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fault.Point(ctx, step.name); err != nil {
			return err
		}
		if err := step.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) begin(context.Context) error {
	st, err := vfs.Lstat(int(w.t.Root.Fd()), "")
	if err != nil {
		return err
	}
	w.ino, w.dev = st.Ino, st.Dev
	w.journal, err = createJournal(w.t.StateDir, &w.record)
	return err
}

func (w *work) makeStages(ctx context.Context) error {
	for _, s := range w.stages {
		if err := fault.Point(ctx, "make a stage"); err != nil {
			return err
		}
		if err := s.make(&w.real); err != nil {
			return err
		}
	}
	return nil
}

// secure has the disk take the stages, and the journal meanwhile: neither order
// of the two could mislead anybody. A stage of which the disk has only a part is
// one from which nothing has been moved yet.
func (w *work) secure(ctx context.Context) error {
	if err := fault.Point(ctx, "write the journal"); err != nil {
		return err
	}
	var both sync.WaitGroup
	var written error
	both.Go(func() { written = w.write() })
	err := w.syncStages()
	both.Wait()
	return errors.Join(err, written)
}

func (w *work) syncStages() error {
	for _, s := range w.stages {
		if err := vfs.SyncFS(int(s.dir.Fd())); err != nil {
			return &os.PathError{Op: "syncfs", Path: s.name, Err: err}
		}
	}
	return nil
}

// syncWritten has the disk take what was built so far, where that was written. Where
// blocks are shared there is little to write, and a commit would be waited for.
func (w *work) syncWritten() error {
	if slices.ContainsFunc(w.stages, func(s *stage) bool { return s.shares }) {
		return nil
	}
	return w.syncStages()
}

func (w *work) syncTarget(context.Context) error {
	if err := vfs.SyncFS(int(w.t.Root.Fd())); err != nil {
		return &os.PathError{Op: "syncfs", Path: w.t.Path, Err: err}
	}
	for _, s := range w.stages {
		if s.dev == w.dev {
			continue // of the same filesystem
		}
		if err := vfs.SyncFS(int(s.dir.Fd())); err != nil {
			return &os.PathError{Op: "syncfs", Path: s.name, Err: err}
		}
	}
	return nil
}

func (w *work) write() error {
	w.ready = true
	return appendJournal(w.journal, w.body())
}

func (w *work) widen(ctx context.Context) error {
	for _, pl := range slices.Backward(w.places) {
		if !pl.widen {
			continue
		}
		if err := fault.Point(ctx, "widen a directory"); err != nil {
			return err
		}
		if err := pl.setMode(&w.real, pl.mode|unix.S_IRWXU); err != nil {
			return at(pl.path, err)
		}
	}
	return nil
}

// narrow gives directories that no change is about their permissions back.
func (w *work) narrow(ctx context.Context) error {
	for _, pl := range w.places {
		if !pl.widen || slices.ContainsFunc(w.ops, func(o *op) bool { return o.path == pl.path && o.after.what&diff.Mode != 0 }) {
			continue
		}
		if err := fault.Point(ctx, "close a directory"); err != nil {
			return err
		}
		if err := pl.setMode(&w.real, pl.mode); err != nil {
			return at(pl.path, err)
		}
	}
	return nil
}

// alter sets the metadata of what stays in place, from the bottom up, so that a
// directory has its time and permissions after all that happens in it.
func (w *work) alter(ctx context.Context) error {
	for _, o := range slices.Backward(w.ops) {
		if o.verb != alter || o.after.what == 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return at(o.path, err)
		}
		if err := fault.Point(ctx, "alter metadata"); err != nil {
			return at(o.path, err)
		}
		if err := w.alterOne(o); err != nil {
			return at(o.path, err)
		}
	}
	return nil
}

func (w *work) alterOne(o *op) error {
	dir, name, err := w.real.at(o.path)
	if missing(err) {
		return movedAway(o.path)
	}
	if err != nil {
		return err
	}
	node, err := openNode(dir, name)
	if missing(err) {
		return movedAway(o.path)
	}
	if err != nil {
		return err
	}
	defer node.Close()
	st, err := vfs.Lstat(int(node.Fd()), "")
	if err != nil {
		return err
	}
	if !o.old.sameNode(&st) || !st.IsDir() && !o.old.is(&st) && !w.alteredBefore(o) {
		return movedAway(o.path)
	}
	return o.after.set(node)
}

// alteredBefore: another name of the same file has been altered alike.
func (w *work) alteredBefore(o *op) bool {
	return slices.ContainsFunc(w.ops, func(x *op) bool { return x != o && x.verb == alter && x.old.ino == o.old.ino })
}

// lookAgain compares all that was displaced once more, now that everything is
// in place: a program may have had it open.
func (w *work) lookAgain(context.Context) error {
	altered := w.altered()
	for _, o := range w.ops {
		if o.verb != swap && o.verb != drop {
			continue
		}
		if err := w.displaced(o, altered); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) commitAll(context.Context) error {
	if err := appendJournal(w.journal, commitLine()); err != nil {
		return err
	}
	w.commit = true
	return nil
}

// stamps are those of all that was promoted.
func (w *work) stamps() map[string]Stamp {
	all := map[string]Stamp{}
	for _, pl := range w.places {
		note(all, &w.real, pl.path)
	}
	for _, s := range w.p.steps {
		if s.Change.New != nil {
			note(all, &w.real, s.Change.Path)
		} else {
			all[s.Change.Path] = Stamp{}
		}
	}
	return all
}

// oldStamps are those of what a promotion that was taken back has touched: it is
// as before, but for its change time.
func (r *record) oldStamps(real *dirs) map[string]Stamp {
	all := map[string]Stamp{}
	for _, pl := range r.places {
		note(all, real, pl.path)
	}
	for _, o := range r.ops {
		st, err := real.stat(o.path)
		if err == nil && o.old.is(&st) {
			all[o.path] = stampOf(&st)
		}
		for rel := range o.olds { // another name of one of them may have been moved
			note(all, real, join(o.path, rel))
		}
	}
	return all
}

func note(all map[string]Stamp, real *dirs, path string) {
	if st, err := real.stat(path); err == nil {
		all[path] = stampOf(&st)
	}
}

func stampOf(st *vfs.Stat) Stamp { return Stamp{st.Ino, st.CTime.Time()} }

// describe notes in the journal whose promotion it is.
func (w *work) describe(o Options, changes int) {
	w.sandbox, w.group, w.made, w.count, w.keep = o.Sandbox, cmp.Or(o.Group, w.id), time.Now(), changes, keepNot
	if o.KeepUndo {
		w.keep = keepHistory
		if o.Passing {
			w.keep = keepPassing
		}
	}
}

// end drops what was displaced, or keeps it. What goes wrong here is mended by
// the next Recover: the promotion itself is done.
func (w *work) end(ctx context.Context, stamps map[string]Stamp) {
	name := w.journal.Name()
	if w.keep == keepNot {
		_ = w.finishCommitted(ctx, &w.real, name) // its journal is still there, and says what is left
		return
	}
	if appendJournal(w.journal, stampLines(stamps)) == nil && w.settle(name) == nil && w.keep == keepHistory {
		trim(ctx, w.t.StateDir)
	}
}

func movedAway(path string) error {
	return &errs.Error{Op: doing, Path: pathlist.Printable(path), Kind: errs.ErrDrifted, Err: errors.New("it has been changed this very moment")}
}
