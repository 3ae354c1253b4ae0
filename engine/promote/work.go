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

	"github.com/snapfs/snapfs/engine/promote/journalfile"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/promote/nodes"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A work is a running promotion: its steps and journal, source, target and plan. Apply makes it.
type work struct {
	record
	t       Target
	from    Source
	p       *planner
	real    nodes.Dirs
	journal *os.File
	built   map[string]location
	dev     uint64 // of the target
}

// newWork returns the promotion of the plan p, with the header of its journal, for which o are the options of Apply.
func newWork(t Target, from Source, p *planner, o Options) *work {
	w := &work{t: t, from: from, p: p, real: nodes.Dirs{Root: t.Root}, built: map[string]location{}}
	w.path, w.ops, w.stages, w.id = t.Path, p.ops, p.stages, newID()
	w.sandbox, w.group, w.made, w.count, w.retain = o.Sandbox, cmp.Or(o.Group, w.id), time.Now(), counted(p.steps, o.Internal), retainNone
	if o.KeepUndo {
		w.retain = retainHistory
		if o.Temporary {
			w.retain = retainTemporary
		}
	}
	for _, pl := range p.changed {
		w.dirs = append(w.dirs, pl)
	}
	// From the bottom up: each directory is restored after its subdirectories.
	slices.SortFunc(w.dirs, func(a, b *nodes.ChangedDir) int { return diff.ComparePaths(b.Path, a.Path) })
	for _, s := range w.stages {
		s.name = stagePrefix + w.id
	}
	return w
}

// newID returns a new id for a promotion, made of the process's identity and a random number.
func newID() string {
	self, err := proc.Self()
	if err != nil {
		self.PID = os.Getpid()
	}
	return strconv.FormatInt(int64(self.PID), 36) + "-" + strconv.FormatUint(self.Start, 36) + "-" + strconv.FormatUint(rand.Uint64(), 36)
}

func (w *work) close() {
	w.real.Close()
	for _, s := range w.stages {
		s.close()
	}
	if w.journal != nil {
		w.journal.Close()
	}
}

// run carries out the promotion up to the commit, step by step. After an error the caller reverts it.
func (w *work) run(ctx context.Context) error {
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"begin the journal", w.begin},
		{"make the stages", w.makeStages},
		{"settle the source", w.settleSource},
		{"build the new versions", w.build},
		{"sync the stages", w.syncStagesAndJournal},
		{"widen directories", w.widen},
		{"move", w.move},
		{"alter", w.alter},
		{"close directories", w.restoreModes},
		{"sync the target", w.syncTarget},
		{"look again", w.recheck},
		{"commit", w.writeCommit},
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

// syncStagesAndJournal syncs the stages, the directories with the new versions, and writes and syncs the
// journal at the same time. Their order does not matter: before the journal is complete, nothing moves from
// the stages.
func (w *work) syncStagesAndJournal(ctx context.Context) error {
	if err := fault.Point(ctx, "write the journal"); err != nil {
		return err
	}
	var both sync.WaitGroup
	var written error
	both.Go(func() {
		w.ready = true
		written = journalfile.Append(w.journal, w.body())
	})
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

// syncWritten writes the new versions built so far to disk, while more are built. With reflinks it does
// nothing: there is little to write, and a commit would cost more.
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
			continue // on the same filesystem
		}
		if err := vfs.SyncFS(int(s.dir.Fd())); err != nil {
			return &os.PathError{Op: "syncfs", Path: s.name, Err: err}
		}
	}
	return nil
}

func (w *work) widen(ctx context.Context) error {
	for _, pl := range slices.Backward(w.dirs) {
		if !pl.Widen {
			continue
		}
		if err := fault.Point(ctx, "widen a directory"); err != nil {
			return err
		}
		if err := pl.SetMode(&w.real, pl.Mode|unix.S_IRWXU); err != nil {
			return at(pl.Path, err)
		}
	}
	return nil
}

// restoreModes restores the permissions of real directories in which the promotion could change names only
// after it had added permissions. It leaves out those whose mode the promotion sets anyway.
func (w *work) restoreModes(ctx context.Context) error {
	for _, pl := range w.dirs {
		if !pl.Widen || slices.ContainsFunc(w.ops, func(o *op) bool { return o.path == pl.Path && o.after.What&diff.Mode != 0 }) {
			continue
		}
		if err := fault.Point(ctx, "close a directory"); err != nil {
			return err
		}
		if err := pl.SetMode(&w.real, pl.Mode); err != nil {
			return at(pl.Path, err)
		}
	}
	return nil
}

// alter sets the metadata of real nodes that stay in place. It goes from the bottom up, so that a directory
// gets its time and permissions after all changes in it.
func (w *work) alter(ctx context.Context) error {
	for _, o := range slices.Backward(w.ops) {
		if o.verb != alter || o.after.What == 0 {
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
	dir, name, err := w.real.At(o.path)
	if nodes.Missing(err) {
		return changedMeanwhile(o.path)
	}
	if err != nil {
		return err
	}
	node, err := nodes.Open(dir, name)
	if nodes.Missing(err) {
		return changedMeanwhile(o.path)
	}
	if err != nil {
		return err
	}
	defer node.Close()
	st, err := vfs.Lstat(int(node.Fd()), "")
	if err != nil {
		return err
	}
	if !o.old.SameNode(&st) || !st.IsDir() && !o.old.Is(&st) && !w.alteredBefore(o) {
		return changedMeanwhile(o.path)
	}
	return o.after.Set(node)
}

// alteredBefore reports whether another step than o sets metadata of the same file, through another name
// (hard link), so that o finds the file changed.
func (w *work) alteredBefore(o *op) bool {
	return slices.ContainsFunc(w.ops, func(x *op) bool { return x != o && x.verb == alter && x.old.Ino == o.old.Ino })
}

// recheck compares the old files that the promotion has moved out of the real tree with the state that it
// planned to replace, because a program may have written to one through an open file.
func (w *work) recheck(context.Context) error {
	altered := w.altered()
	for _, o := range w.ops {
		if o.verb != swap && o.verb != drop {
			continue
		}
		if err := w.checkDisplaced(o, altered); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) writeCommit(context.Context) error {
	if err := journalfile.Append(w.journal, commitLine()); err != nil {
		return err
	}
	w.commit = true
	return nil
}

// stamps returns the stamps (inode and change time) that all promoted paths have in the real tree now.
func (w *work) stamps() map[string]Stamp {
	all := map[string]Stamp{}
	for _, pl := range w.dirs {
		addStamp(all, &w.real, pl.Path)
	}
	for _, s := range w.p.steps {
		if s.New != nil {
			addStamp(all, &w.real, s.Path)
		} else {
			all[s.Path] = Stamp{}
		}
	}
	return all
}

// oldStamps returns the present stamps (inode and change time) of those real paths that a revert restored.
func (r *record) oldStamps(real *nodes.Dirs) map[string]Stamp {
	all, altered := map[string]Stamp{}, r.altered()
	for _, pl := range r.dirs {
		addStamp(all, real, pl.Path)
	}
	for _, o := range r.ops {
		st, err := real.Stat(o.path)
		switch {
		case err == nil && altered.isReverted(o.old, &st):
			addStamp(all, real, o.path)
		case o.verb == put && nodes.Missing(err):
			all[o.path] = Stamp{}
		}
		for rel := range o.oldTree { // another name of one of them may have moved
			addStamp(all, real, nodes.Join(o.path, rel))
		}
	}
	return all
}

// addStamp adds the stamp of a file to all, unless its filesystem stores times in seconds, so that a later change
// could leave the same stamp. A directory has no content that such a change could lose.
func addStamp(all map[string]Stamp, real *nodes.Dirs, path string) {
	if st, err := real.Stat(path); err == nil && (st.IsDir() || vfs.Coarseness(st.CTime.Time()) == 0) {
		all[path] = stampOf(&st)
	}
}

func stampOf(st *vfs.Stat) Stamp { return Stamp{st.Ino, st.CTime.Time()} }

// complete removes the old versions after a commit or, for an undo, retains them and writes stamps, the inodes and
// change times of the promoted files, into the journal. After an error here the promotion itself is complete, and the
// next Recover repeats this step.
func (w *work) complete(ctx context.Context, stamps map[string]Stamp) {
	name := w.journal.Name()
	if w.retain == retainNone {
		_ = w.finishCommitted(ctx, &w.real, name) // the journal remains and lists the leftovers
		return
	}
	if journalfile.Append(w.journal, stampLines(stamps)) != nil || w.makeUndoable(name) != nil || w.retain != retainHistory {
		return
	}
	others, _ := journalfile.Names(w.t.StateDir, suffixUndo, suffixRedo) // what cannot be listed now is left for the next promotion
	if len(others) > History {                                           // each group has a journal or more
		trim(ctx, w.t.StateDir)
	}
	ignoreStages(w.t.StateDir, slices.DeleteFunc(others, func(name string) bool { return name == w.id+suffixUndo }))
}

func changedMeanwhile(path string) error {
	return &errs.Error{Op: doing, Path: pathlist.Printable(path), Kind: errs.ErrDrifted, Err: errors.New("changed during the promotion")}
}
