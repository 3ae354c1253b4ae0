package reconcile

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/merge"
	"github.com/snapfs/snapfs/engine/merge/mergetool"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
)

// resolve applies answers to the conflicts that a refresh left in a sandbox. It writes to new forks of the sandbox's
// present state, which replace the old forks when all is written.
func (rc *Reconciler) resolve(ctx context.Context, h *catalog.Locked, changes *compare.Changes, a Answers, r *Refreshed) error {
	list, err := rc.readConflicts(h.Record)
	if err != nil {
		return err
	}
	ids, forks := sandbox.NewSnapshotIDs(h.Record), make([]snapshot.ForkID, len(h.Trees))
	for i := range forks {
		forks[i] = h.NewFork()
	}
	return rc.sandboxes.Changing(ctx, h, func() error {
		if err := rc.supervise.SealAll(ctx, h, ids); err != nil {
			return err
		}
		if err := rc.sandboxes.ForkAll(ctx, h.Record, h.Trees, ids, forks); err != nil {
			return err
		}
		next := cloneRecord(h.Record)
		for i := range next.Trees {
			next.Trees[i].Fork = forks[i]
		}
		w := &resolving{rc: rc, rec: next, changed: compare.PlacesOf(changes), a: a, dir: rc.baseline.BaseDir(h.Name, h.Refreshed), conflicts: list.Conflicts, moved: map[string]*movedFiles{}}
		defer w.close()
		for i := range list.Conflicts {
			done, err := w.resolveOne(ctx, &list.Conflicts[i])
			if err != nil {
				return err
			}
			if done {
				r.Resolved++
			}
		}
		if r.Resolved == 0 {
			return &errs.Error{Op: "resolving", Path: h.Name, Kind: errs.ErrNotFound, Err: errors.New("no open conflict at any of these paths"), Hints: []string{"snapfs show " + h.Name}}
		}
		*h.Record = *next
		if err := h.Save(); err != nil {
			return err
		}
		// If this fails, a text without markers still counts as resolved.
		if err := fault.Point(ctx, "note the conflicts"); err != nil {
			return errs.Wrap("refreshing", h.Name, err)
		}
		return errors.Join(rc.saveConflicts(h.Record, list), rc.sandboxes.Tidy(ctx, h.Record))
	})
}

// A resolving holds the inputs of one call of [Reconciler.resolve], which applies answers to conflicts.
type resolving struct {
	rc      *Reconciler
	rec     *catalog.Record
	changed compare.Places
	a       Answers
	dir     string // holds the versions of marked texts
	// conflicts are those of the refresh, and moved is what has been moved to their paths, by the part's directory.
	conflicts []refreshConflict
	moved     map[string]*movedFiles
}

// resolveOne resolves a conflict if it is open and an answer matches; it reports whether it did.
func (w *resolving) resolveOne(ctx context.Context, c *refreshConflict) (bool, error) {
	stands, err := c.isOpen(w.changed)
	if err != nil || !stands {
		return false, err
	}
	part := c.changedIn(w.changed)
	switch {
	case matchAny(w.rec.Workspace, w.a.mine, c.Path):
		c.Resolved = "mine"
		if !c.Marked {
			return true, nil // the sandbox has its own version
		}
		return true, w.writeFile(ctx, c, part, filepath.Join(w.dir, c.Mine))
	case matchAny(w.rec.Workspace, w.a.theirs, c.Path):
		c.Resolved = "theirs"
		return true, w.takeTheirs(ctx, c, part)
	case w.a.tool != "" && c.Marked:
		c.Resolved = "tool"
		return true, w.runTool(ctx, c, part)
	}
	return false, nil
}

// withFork opens the new fork at the directory of part, calls do, then closes and syncs the fork.
func (w *resolving) withFork(ctx context.Context, part *compare.Part, do func(fork *ForkTree) error) error {
	i := slices.IndexFunc(w.rec.Trees, func(t catalog.Tree) bool { return t.Path == part.Tree })
	fork, err := w.rc.OpenFork(ctx, w.rec.Trees[i], part.Root)
	if err != nil {
		return err
	}
	defer fork.Close()
	if err := do(fork); err != nil {
		return err
	}
	return fork.Sync(ctx)
}

// writeFile writes the content of file to the path of a conflict in the new fork.
func (w *resolving) writeFile(ctx context.Context, c *refreshConflict, part *compare.Part, file string) error {
	rel, err := filepath.Rel(part.Root, c.Path)
	if err != nil {
		return err
	}
	dir := filepath.Join(w.rc.scratchDir(w.rec.Name), "resolved")
	defer os.RemoveAll(dir) //nolint:errcheck // or the next use does
	at := filepath.Join(dir, rel)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Dir(at), 0o700)); err != nil {
		return scratchError(at, err)
	}
	if err := mergetool.CopyTo(at, func() (io.ReadCloser, error) { return os.Open(file) }); err != nil {
		return scratchError(at, err)
	}
	built, err := baseline.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer built.Close()
	now := baseline.RootedReader{Root: part.New}
	defer now.Close()
	n, err := now.Node(rel)
	if err != nil || n == nil {
		return errs.Wrap("reading", c.Path, errors.Join(err, errs.ErrNotFound))
	}
	info, err := os.Lstat(at)
	if err != nil {
		return scratchError(at, err)
	}
	n.Mode, n.Size, n.MTime, n.LinkOf, n.NLink = c.Mode, info.Size(), time.Now(), "", 1
	return w.withFork(ctx, part, func(fork *ForkTree) error {
		source := promote.Source{Tree: part.New, Built: built, In: map[string]bool{rel: true}}
		return promote.Replay(ctx, fork.Dir, source, []diff.Change{{Path: rel, Kind: diff.Added, New: n}})
	})
}

// takeTheirs writes the base's version to the paths of a conflict. The base is the real tree at the refresh.
func (w *resolving) takeTheirs(ctx context.Context, c *refreshConflict, part *compare.Part) error {
	var touches []snapshot.Candidate
	for _, abs := range c.places() {
		rel, err := filepath.Rel(part.Root, abs)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		touches = append(touches, snapshot.Candidate{Path: rel, Tree: !c.Alone})
	}
	return w.withFork(ctx, part, func(fork *ForkTree) error {
		if err := w.restoreOrigins(ctx, part, touches, fork.Dir); err != nil {
			return err
		}
		return copyFrom(ctx, fork.Dir, part.Old, part.Opt.Skip, touches)
	})
}

// movedFiles are the old paths of files in one directory that the sandbox has moved to paths of answered conflicts.
type movedFiles struct {
	*partMerge                   // its real tree has the files
	from       map[string]string // by the new path
}

// restoreOrigins restores in the fork, at their old paths, the files that the sandbox has moved to the paths touches since
// the refresh. The real versions are about to replace them there. touches are paths of an answered conflict in part.
func (w *resolving) restoreOrigins(ctx context.Context, part *compare.Part, touches []snapshot.Candidate, fork *os.File) error {
	moved, err := w.movedIn(ctx, part)
	if err != nil {
		return err
	}
	var at pathlist.Subtrees
	for _, t := range touches {
		if t.Tree {
			at.Add(t.Path)
		}
	}
	var old []snapshot.Candidate
	for to, from := range moved.from {
		if at.Cover(to) {
			old = append(old, snapshot.Candidate{Path: from})
		}
	}
	if len(old) == 0 {
		return nil
	}
	return copyFrom(ctx, fork, moved.real, part.Opt.Skip, old)
}

// movedIn returns the files in part that the sandbox has moved to paths of conflicts. It looks for them once.
func (w *resolving) movedIn(ctx context.Context, part *compare.Part) (*movedFiles, error) {
	if known := w.moved[part.Root]; known != nil {
		return known, nil
	}
	m, err := w.rc.prepare(ctx, mergeRequest{rec: w.rec}, *part)
	moved := &movedFiles{partMerge: m}
	w.moved[part.Root] = moved // to be closed
	if err != nil {
		return nil, err
	}
	var places []string
	for i := range w.conflicts {
		for _, abs := range w.conflicts[i].places() {
			if rel, err := filepath.Rel(part.Root, abs); err == nil && filepath.IsLocal(rel) {
				places = append(places, rel)
			}
		}
	}
	moved.from, err = merge.Origins(ctx, m.in, places)
	return moved, err
}

// close closes the open trees of the real files that answers to conflicts of a refresh needed.
func (w *resolving) close() {
	for _, m := range w.moved {
		m.close()
	}
}

// runTool merges a conflict's stored versions of a text by the merge tool, and writes the result to the fork.
func (w *resolving) runTool(ctx context.Context, c *refreshConflict, part *compare.Part) error {
	version := func(name string) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) {
			if name == "" {
				return nil, nil
			}
			return os.Open(filepath.Join(w.dir, name))
		}
	}
	scratch := w.rc.scratchDir(w.rec.Name)
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return scratchError(scratch, err)
	}
	out := filepath.Join(scratch, "merged")
	defer os.Remove(out) //nolint:errcheck // or the next use does
	files := mergetool.Versions{Base: version(c.Base), Mine: version(c.Mine), Real: version(c.Real)}
	if err := mergetool.Run(ctx, w.a.tool, w.a.terminal, files, filepath.Join(scratch, "tool"), c.Path, out); err != nil {
		return err
	}
	return w.writeFile(ctx, c, part, out)
}

// readText reads a text of at most merge.TextMax bytes. Error: ErrBusy if it is larger, since it has grown.
func readText(f *os.File) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, merge.TextMax+1))
	if err == nil && len(data) > merge.TextMax {
		err = &errs.Error{Op: "reading", Path: f.Name(), Kind: errs.ErrBusy, Err: errors.New("the file is growing")}
	}
	return data, err
}
