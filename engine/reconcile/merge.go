package reconcile

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/merge"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/errs"
)

// A mergeRequest describes a merge of a sandbox's changes onto the real tree, for a promotion or a refresh.
type mergeRequest struct {
	rec    *catalog.Record
	target string // the directory onto which the workspace is merged, "" for the workspace itself
	// real, if not nil, opens the tree to merge onto, with its changes: for a refresh, the new base.
	real func(p compare.Part) (*os.File, []diff.Change, error)
	// choose, if not nil, answers conflicts. It may write the merged file to in.Scratch.
	choose  func(m *partMerge, c merge.Conflict) merge.Choice
	renamed map[string]string // new path of each file that the sandbox deleted and the real tree renamed
	// promotes is set for a promotion: a file changed under one of several hard links is then a conflict.
	promotes bool
	failed   *error // nil, or where choose stores the error of a merge tool; the merge fails with it
}

// A partMerge is the merge of the sandbox's changes in one directory, a part, onto the real tree, with its inputs
// open and its result. close closes it.
type partMerge struct {
	mergeRequest
	Part    compare.Part
	tree    catalog.Tree
	path    string
	real    *os.File
	base    *baseline.MergeBase
	in      merge.Input
	res     *merge.Result
	scratch string
	built   *os.File                     // scratch, open, once files of the result are in it
	seen    map[string]*diff.Node        // the real files at the changed paths, read before their content
	theirs  answeredPaths                // those of which an answer of choose takes the real version
	exact   bool                         // there are exact lists of all changes
	split   map[string]compare.SplitLink // changed files with unchanged other hard links, by path
	known   map[string]promote.Stamp     // the stamps of the sandbox's promotions in the part
}

// asPromoted reports whether the target has at a path the file that a promotion of the sandbox, or its undo, left
// there. n is the present file, nil for none.
func (m *partMerge) asPromoted(path string, n *diff.Node) bool {
	s, known := m.known[path]
	if e := m.base.Baseline.Nodes[m.base.Abs(path)]; n == nil { // the stamp of an older removal is the same
		return known && s.Ino == 0 && e.Promoted && e.Node == nil
	}
	return known && s.Ino == n.Ino && s.CTime.Equal(n.CTime)
}

// interrupted returns an ErrInterrupted if ctx has ended, else nil. Every loop over changes calls it.
func (m *partMerge) interrupted(ctx context.Context) error {
	return errs.With("merging", m.path, ctx.Err())
}

// close closes all files of the merge and removes its scratch directory. m may be nil.
func (m *partMerge) close() {
	if m == nil {
		return
	}
	for _, f := range []*os.File{m.real, m.built} {
		if f != nil {
			f.Close()
		}
	}
	if m.base != nil {
		m.base.Frozen.Close()
		if m.base.Live != nil {
			m.base.Live.Real.Close()
			m.base.Live.Real.Root.Close()
		}
	}
	_ = os.RemoveAll(m.scratch)
	_ = os.Remove(filepath.Dir(m.scratch)) // fails unless it is empty
}

// scratchDir returns the directory for merged files of a sandbox. The holder of the sandbox's lock owns it; the next
// merge removes the files of a killed command.
func (rc *Reconciler) scratchDir(name string) string {
	return filepath.Join(rc.cat.Path(name), "scratch")
}

// mergePart merges the changes in one directory, p, onto the real tree; the caller closes the result. The caller
// holds the sandbox's lock and has frozen its processes. If a real file changes meanwhile, mergePart begins again, up
// to five times, so that it reads one consistent state. Errors: those of merge.Trees; ErrBusy if a real file keeps
// changing; ErrNotFound if the target is gone.
func (rc *Reconciler) mergePart(ctx context.Context, r mergeRequest, p compare.Part) (*partMerge, error) {
	for tries := 1; ; tries++ {
		m, err := rc.prepare(ctx, r, p)
		if err == nil {
			m.res, err = merge.Trees(ctx, m.in)
		}
		if err == nil && r.failed != nil {
			err = *r.failed
		}
		if err == nil && len(m.res.Built) > 0 {
			err = m.openBuilt()
		}
		moved := "" // a file that changed under the reader is one, too
		if err == nil {
			moved, err = m.changedSince(ctx)
		}
		if err == nil && moved == "" {
			return m, nil
		}
		m.close()
		if err = m.Part.Lost(err); err != nil && (tries == 5 || !errors.Is(err, errs.ErrBusy)) {
			return nil, err
		}
		if tries == 5 {
			return nil, &errs.Error{Op: "merging", Path: moved, Kind: errs.ErrBusy, Err: errors.New("the file keeps changing")}
		}
	}
}

// prepare opens all inputs to merge the changes in one directory, p. The caller closes m, also after an error.
func (rc *Reconciler) prepare(ctx context.Context, r mergeRequest, p compare.Part) (m *partMerge, err error) {
	m = &partMerge{mergeRequest: r, Part: p, path: p.Root, seen: map[string]*diff.Node{}}
	for _, t := range r.rec.Trees {
		if t.Path == p.Tree {
			m.tree = t
		}
	}
	if r.target != "" && p.Workspace {
		m.path = r.target
	}
	m.scratch = filepath.Join(rc.scratchDir(r.rec.Name), strings.ReplaceAll(p.Root, "/", "-"))
	if err := os.RemoveAll(m.scratch); err != nil {
		return m, scratchError(m.scratch, err)
	}
	m.in.Scratch = m.scratch
	if err := rc.openMergeBase(m); err != nil {
		return m, err
	}
	if err := rc.openRealSide(ctx, m); err != nil {
		return m, err
	}
	m.in.MineTree, m.in.RealTree, m.in.OldTree = p.New, m.real, p.Old
	m.in.MineOptions, m.in.RealOptions = p.Opt, p.Opt
	m.in.RealOptions.SameInodes = p.Opt.SameInodes || len(r.renamed) > 0 // of the real tree both
	if m.path != p.Root {
		m.in.RealOptions = diff.Options{Skip: p.Opt.Skip, OverlayViews: true}
	}
	m.in.OpenBase = m.base.Open
	if err := m.addLost(); err != nil {
		return m, err
	}
	if err := m.addSplit(ctx); err != nil {
		return m, err
	}
	m.in.MineName, m.in.RealName = "sandbox "+r.rec.Name, "real"
	if r.choose != nil {
		m.in.Choose = func(c merge.Conflict) merge.Choice {
			choice := r.choose(m, c)
			if s, split := m.splitAt(&c); split && choice == merge.Mine && s.Renamed == "" {
				choice = merge.Ask // a promotion cannot change one link alone
			}
			if choice == merge.Theirs {
				m.theirs.add(&c)
			}
			return choice
		}
	}
	return m, nil
}

// openBuilt opens the scratch directory of the merge, which has files of the result, as m.built.
func (m *partMerge) openBuilt() (err error) {
	if m.built == nil {
		m.built, err = os.Open(m.scratch)
	}
	return scratchError(m.scratch, err)
}

// scratchError returns err as an error about path, in the scratch directory of a merge.
func scratchError(path string, err error) error {
	return errs.With("creating the scratch directory", path, err)
}

// openMergeBase opens the merge base, m.base, and reads into m.known the stamps (inode, change time) of files that
// the sandbox promoted. For another target, promotions to the workspace do not count.
func (rc *Reconciler) openMergeBase(m *partMerge) error {
	k, err := rc.baseline.Read(m.rec)
	if err != nil {
		return err
	}
	if m.path != m.Part.Root {
		k.In(m.Part.Root, m.path)
	}
	m.base = &baseline.MergeBase{Root: m.Part.Root, Baseline: k}
	known, err := rc.baseline.Stamps(m.rec.Name)
	if err != nil {
		return err
	}
	m.known = known.In(m.path)
	if m.Part.Frozen {
		m.base.Frozen = baseline.RootedReader{Root: m.Part.Old}
		return nil
	}
	real, err := baseline.OpenRoot(m.Part.Root)
	if err != nil {
		return err
	}
	m.base.Live = &baseline.LiveBase{
		Real: baseline.RootedReader{Root: real}, Since: rc.baseline.Since(m.rec, &m.tree), Known: known.In(m.Part.Root),
		OpenFork: func() (*os.File, error) { return m.Part.New, nil },
	}
	return nil
}

// openRealSide opens the real directory onto which m merges, and lists its changes since the base.
func (rc *Reconciler) openRealSide(ctx context.Context, m *partMerge) error {
	var err error
	var theirs []diff.Change
	switch {
	case m.mergeRequest.real != nil:
		m.real, theirs, err = m.mergeRequest.real(m.Part)
		m.exact = m.Part.Frozen
	default:
		m.real, err = baseline.OpenRoot(m.path)
	}
	if err != nil {
		return err
	}
	if err := m.statAll(ctx); err != nil {
		return err
	}
	if m.mergeRequest.real == nil && m.Part.Frozen && m.Part.Workspace && m.path == m.Part.Root {
		if theirs, m.exact, err = rc.compare.RealChangesIn(ctx, m.tree, m.Part.Root); err != nil {
			return err
		}
		if prefix, err := filepath.Rel(m.tree.Path, m.Part.Root); err == nil && prefix != "." {
			for i, c := range theirs {
				theirs[i] = compare.Rebase(c, prefix)
			}
		}
	}
	if m.exact {
		return m.overridePromoted(ctx, theirs)
	}
	return m.compareEach(ctx)
}

// statAll reads the metadata of the real files at the sandbox's changed paths into m.seen. While one is younger than
// [diff.Node.Unsettled] allows it waits and reads again: two changes in one tick of the kernel's clock look alike.
func (m *partMerge) statAll(ctx context.Context) error {
	l := baseline.RootedReader{Root: m.real}
	defer l.Close()
	for began := time.Now(); ; {
		var wait time.Duration
		for i := range m.Part.Changes {
			if err := m.interrupted(ctx); err != nil {
				return err
			}
			path := m.Part.Changes[i].Path
			n, err := l.Node(path)
			if err != nil {
				return errs.Wrap("reading", filepath.Join(m.path, path), err)
			}
			m.seen[path] = n
			wait = max(wait, n.Unsettled())
		}
		if wait == 0 || m.mergeRequest.real != nil {
			return nil
		}
		if time.Since(began) > 5*time.Second {
			return errs.New("reading", m.path, errs.ErrConflict, "a program changes a file there all the time")
		}
		time.Sleep(wait)
	}
}

// changedSince returns the path of a real file that has changed since statAll read it, or "".
func (m *partMerge) changedSince(ctx context.Context) (string, error) {
	if m.mergeRequest.real != nil && m.Part.Frozen {
		return "", nil
	}
	l := baseline.RootedReader{Root: m.real}
	defer l.Close()
	for _, path := range slices.Sorted(maps.Keys(m.seen)) { // sorted, for the cache of l
		if err := m.interrupted(ctx); err != nil {
			return "", err
		}
		now, err := l.Present(path)
		if err != nil {
			return "", errs.Wrap("reading", filepath.Join(m.path, path), err)
		}
		if !sameNode(m.seen[path], now) {
			return filepath.Join(m.path, path), nil
		}
	}
	return "", nil
}

// sameNode reports whether a and b are the same state of one inode. For a directory, entries do not count.
func sameNode(a, b *diff.Node) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.Mode.IsDir() && b.Mode.IsDir() {
		return a.Ino == b.Ino && a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID
	}
	sized := a.Size == b.Size || a.Mode.Type() == fs.ModeSymlink // filesystems disagree on the size of a symlink
	return a.Ino == b.Ino && a.CTime.Equal(b.CTime) && sized && a.Mode == b.Mode
}

// overridePromoted fills in the merge's input from complete lists of both sides' changes; theirs are the real tree's.
// At paths promoted since the base it compares with the promoted state instead of the base.
func (m *partMerge) overridePromoted(ctx context.Context, theirs []diff.Change) error {
	m.in.Mine, m.in.Real = m.Part.Changes, theirs
	m.in.BaseTree = m.Part.Old
	promoted := map[string]bool{}
	for abs, n := range m.base.Baseline.Nodes {
		if rel, err := filepath.Rel(m.Part.Root, abs); n.Promoted && err == nil && filepath.IsLocal(rel) {
			promoted[rel] = true
		}
	}
	if len(promoted) == 0 {
		return nil
	}
	m.in.BaseTree = nil // it lacks the promoted states
	without := func(all []diff.Change) (rest []diff.Change) {
		for _, c := range all {
			if !promoted[c.Path] {
				rest = append(rest, c)
			}
		}
		return rest
	}
	m.in.Mine, m.in.Real = without(m.in.Mine), without(m.in.Real)
	mine, real := baseline.RootedReader{Root: m.Part.New}, baseline.RootedReader{Root: m.real}
	defer mine.Close()
	defer real.Close()
	for path := range promoted {
		if err := m.interrupted(ctx); err != nil {
			return err
		}
		now, err := mine.Node(path)
		if err != nil {
			return errs.Wrap("reading", filepath.Join(m.Part.Root, path), err)
		}
		there, err := real.Node(path)
		if err != nil {
			return errs.Wrap("reading", filepath.Join(m.path, path), err)
		}
		m.seen[path] = there
		if err := m.reportBoth(ctx, path, m.base.Baseline.Nodes[m.base.Abs(path)].Node, now, there); err != nil {
			return err
		}
	}
	baseline.SortChanges(m.in.Mine)
	baseline.SortChanges(m.in.Real)
	return nil
}

// reportBoth adds to the merge's input how mine and real, the sandbox's and the real file at a path, each differ from
// base. Each is nil for no file.
func (m *partMerge) reportBoth(ctx context.Context, path string, base, mine, real *diff.Node) error {
	c, err := m.base.Between(ctx, path, base, mine, m.Part.New)
	if err != nil {
		return err
	}
	if c != nil {
		m.in.Mine = append(m.in.Mine, *c)
	}
	// In the workspace only what has the sandbox's state has a stamp. Another target may have
	// the result of a merge, with a size or time of its own.
	own := m.path == m.Part.Root || base == nil && real == nil ||
		base != nil && real != nil && base.Size == real.Size && base.MTime.Equal(real.MTime)
	if own && m.base.Baseline.Nodes[m.base.Abs(path)].Promoted && m.asPromoted(path, real) {
		return nil // unchanged since the promotion
	}
	if c, err = m.base.Between(ctx, path, base, real, m.real); err != nil {
		return err
	}
	if c != nil {
		m.in.Real = append(m.in.Real, *c)
	}
	return nil
}

// expected returns the stamps (inode, change time) of the real files at the paths of changes, as the merge read them.
// A promotion changes nothing unless all of them still match.
func (m *partMerge) expected(ctx context.Context, changes []diff.Change) (map[string]promote.Stamp, error) {
	l := baseline.RootedReader{Root: m.real}
	defer l.Close()
	all := map[string]promote.Stamp{}
	for _, c := range changes {
		if err := m.interrupted(ctx); err != nil {
			return nil, err
		}
		n, seen := m.seen[c.Path]
		if !seen {
			var err error
			if n, err = l.Node(c.Path); err != nil {
				return nil, errs.Wrap("reading", filepath.Join(m.path, c.Path), err)
			}
		}
		if n != nil {
			all[c.Path] = promote.Stamp{Ino: n.Ino, CTime: n.CTime}
		}
	}
	return all, nil
}
