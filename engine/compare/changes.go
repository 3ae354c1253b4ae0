package compare

import (
	"context"
	"errors"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/gitresult"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate"
)

// Changes lists the differences between two states of a sandbox: first those of the workspace, then those of
// each tree outside the workspace. Parts without changes are left out. A [Comparer] makes it, and the caller
// closes it.
type Changes struct {
	Parts []Part
	// Git is filled in by FindCommits.
	Git []gitresult.Report
}

// A Part holds the changes in one directory tree of a sandbox, such as the workspace, with the directory open
// for reading in both compared states.
type Part struct {
	// Root is the directory, absolute. The paths of Changes are relative to it.
	Root string
	// Workspace reports whether Root is the sandbox's workspace.
	Workspace bool
	Changes   []diff.Change
	// Renames are the renames among Changes; FindRenames fills them in.
	Renames []diff.Rename
	// LostDirs are the directories with Changes of which the content is lost.
	LostDirs []LostDir
	// Split are the changed files of which other names are unchanged; FindSplit fills them in.
	Split []SplitLink
	// Old and New are Root in the old and the new state, open for reading. [Changes.Close]
	// closes them.
	Old, New *os.File
	// Tree is the tree that contains Root. Taken is the time of its base, and Frozen is set if
	// that base is frozen.
	Tree   string
	Taken  time.Time
	Frozen bool
	Opt    diff.Options // those of the comparison that found Changes
}

// Len returns the number of changed paths of the sandbox in all parts, counted as by [diff.Count], plus the
// number of moved git refs.
func (c *Changes) Len() int {
	n := 0
	for _, p := range c.Parts {
		n += diff.Count(p.Changes)
	}
	for _, r := range c.Git {
		n += len(r.Refs)
	}
	return n
}

// FindCommits fills in Git with the commits that the sandbox made in git repositories, and removes the
// changes of git's own files from the parts. problems says, as text, which repositories it could not read;
// their files stay in the list. Cost: nothing without a change in a .git directory.
func (c *Changes) FindCommits() (problems []string) {
	for i := range c.Parts {
		p := &c.Parts[i]
		if !slices.ContainsFunc(p.Changes, func(ch diff.Change) bool { return strings.Contains(ch.Path+"/", ".git/") }) {
			continue
		}
		t := gitresult.Trees{Path: p.Root, Base: p.Old, Real: p.Old, Mine: p.New}
		rest, repos, unread := gitresult.Split(t, p.Changes)
		problems = append(problems, unread...)
		var found []gitresult.Report
		for _, dir := range repos {
			r, err := gitresult.Inspect(t, dir)
			if err != nil {
				problems, rest = append(problems, err.Error()), p.Changes
				continue
			}
			if report := r.Report(); len(report.Refs) > 0 {
				found = append(found, report)
			}
			r.Close()
		}
		p.Changes, c.Git = rest, append(c.Git, found...)
	}
	return problems
}

// Elsewhere returns how many of a sandbox's changed paths lie outside its workspace.
func (c *Changes) Elsewhere() (n int) {
	for _, p := range c.Parts {
		if !p.Workspace {
			n += diff.Count(p.Changes)
		}
	}
	return n
}

// Close closes the directories Old and New (base and present state) of all parts of the comparison.
func (c *Changes) Close() {
	for _, p := range c.Parts {
		p.Old.Close()
		p.New.Close()
	}
}

// Diff returns the changes between two states of a sandbox, given by names of its snapshots; the caller
// closes the result. An empty from is the base, and an empty to the present state. It also records the
// baseline of changed paths. Where the backend lists changes, the cost grows with their number and not with
// the size of the trees.
//
// Errors: errs.ErrNotFound, and those of diff.Trees.
func (cm *Comparer) Diff(ctx context.Context, name, from, to string) (*Changes, error) {
	return cm.diff(ctx, name, from, to, 0)
}

func (cm *Comparer) diff(ctx context.Context, name, from, to string, fold int) (*Changes, error) {
	rec, err := cm.cat.Get(name)
	if err != nil {
		return nil, err
	}
	cm.sandboxes.ReportMissingWorkspace("comparing", rec)
	c, err := Served(ctx, func(ctx context.Context) (*Changes, error) { return cm.changesAt(ctx, rec, from, to, nil, fold) })
	if err == nil {
		cm.baseline.Record(ctx, rec)
	}
	return c, err
}

// Changes returns the changes from a sandbox's base to its present state; the caller closes them.
func (cm *Comparer) Changes(ctx context.Context, rec *catalog.Record) (*Changes, error) {
	return cm.ChangesAt(ctx, rec, "", "", nil)
}

// ChangesAt compares the states from and to of a sandbox as [Comparer.Diff] does, given its record, and
// records no baseline. listed holds, by tree, the paths that may have changed, for trees whose backend the
// caller has already asked for them; it may be nil.
func (cm *Comparer) ChangesAt(ctx context.Context, rec *catalog.Record, from, to string, listed map[string][]snapshot.Candidate) (*Changes, error) {
	return Served(ctx, func(ctx context.Context) (*Changes, error) { return cm.changesAt(ctx, rec, from, to, listed, 0) })
}

func (cm *Comparer) changesAt(ctx context.Context, rec *catalog.Record, from, to string, listed map[string][]snapshot.Candidate, fold int) (*Changes, error) {
	left, err := sandbox.SnapshotIDs(rec, from)
	if err != nil {
		return nil, err
	}
	var right []snapshot.ID
	if to != "" {
		if right, err = sandbox.SnapshotIDs(rec, to); err != nil {
			return nil, err
		}
	}
	c := new(Changes)
	for i, t := range rec.Trees {
		if hostfs.Vanished(t, rec.Workspace) {
			continue
		}
		p := Pair{Tree: t, Left: left[i], fold: fold}
		p.candidates, p.listed = listed[t.Path]
		if right != nil {
			p.Right = right[i]
		}
		parts, err := cm.comparePair(ctx, rec, p)
		if err != nil {
			c.Close()
			return nil, err
		}
		c.Parts = append(c.Parts, parts...)
	}
	workspaceFirst(c.Parts)
	return c, nil
}

// workspaceFirst moves the part of a comparison that covers the workspace to the front of parts, in place.
// The order of the others stays.
func workspaceFirst(parts []Part) {
	for i, p := range parts {
		if p.Workspace {
			copy(parts[1:i+1], parts[:i])
			parts[0] = p
			return
		}
	}
}

// A Pair names two states of one tree of a sandbox that are to be compared: the snapshots Left and Right. An
// empty Right is the fork in its present state.
type Pair struct {
	Tree        catalog.Tree
	Left, Right snapshot.ID
	// candidates are the paths that may differ, if listed is set.
	candidates []snapshot.Candidate
	listed     bool
	fold       int // as diff.Options.Fold
}

// comparePair compares the two states of one tree and returns the parts, workspace and rest, that have
// changes. It mounts nothing if the backend reports that no path can have changed.
func (cm *Comparer) comparePair(ctx context.Context, rec *catalog.Record, p Pair) ([]Part, error) {
	b, err := cm.host.BackendOf(ctx, p.Tree)
	if err != nil {
		return nil, err
	}
	candidates, walk := p.candidates, false
	if !p.listed {
		candidates, walk, err = ListChanges(ctx, b, p)
	}
	if err != nil || len(candidates) == 0 && !walk {
		return nil, err
	}
	if p.fold > 0 {
		candidates = foldable(candidates, p.Tree.Path, rec.Workspace)
	}
	left, right, err := views(ctx, b, p)
	if err != nil {
		return nil, err
	}
	parts, err := cm.compareIn(rec.Workspace, p.Tree.Path, candidates, walk, func(at place, candidates []snapshot.Candidate, walk bool) (Part, error) {
		dirs, err := at.open(ctx, state{b: b, view: left}, state{b: b, view: right})
		if err != nil {
			return Part{}, err
		}
		whole := Part{Root: at.dir, Old: dirs[0], New: dirs[1], Tree: p.Tree.Path, Taken: p.Tree.Taken, Frozen: p.Tree.Frozen}
		whole.Opt = diff.Options{
			Skip: cm.host.Skip(b, at.dir), OneFilesystem: b.Facts().Unit == snapshot.ByFile,
			SameInodes: b.Facts().KeepsInodes, Taken: p.Tree.Taken, OverlayViews: true, Fold: p.fold,
		}
		whole.Changes, err = whole.find(ctx, candidates, walk)
		if !hostfs.Privileged() {
			whole.Changes = withoutRootOwner(whole.Changes)
		}
		if !p.Tree.Frozen {
			whole.Changes = slices.DeleteFunc(whole.Changes, func(c diff.Change) bool { return isRealDirTime(c, p.Tree.Taken) })
		}
		return whole.closeIfEmpty(whole.Lost(err))
	})
	if err != nil {
		return nil, err
	}
	if parts, err = splitAll(parts, rec.Workspace); err != nil {
		return nil, err
	}
	lost := lostDirs(p.Tree.Path, candidates)
	for i := range parts {
		parts[i].addLost(lost)
		if parts[i].Workspace && err == nil {
			err = parts[i].joinLinks(ctx, candidates)
		}
	}
	if err != nil {
		(&Changes{Parts: parts}).Close()
		return nil, err
	}
	return parts, nil
}

// find returns the differences between the old and the new state of a part of the sandbox's files, such as
// the workspace. It looks only at the candidates, paths that may differ, or at the whole trees if walk is
// set.
func (p *Part) find(ctx context.Context, candidates []snapshot.Candidate, walk bool) ([]diff.Change, error) {
	if walk {
		return diff.Trees(ctx, p.Old, p.New, p.Opt)
	}
	return diff.At(ctx, p.Old, p.New, candidates, p.Opt)
}

// closeIfEmpty returns p, changes in one directory, if it has changes and err is nil. Otherwise it closes p's
// directories and returns an empty part, with err.
func (p Part) closeIfEmpty(err error) (Part, error) {
	if err != nil || len(p.Changes) == 0 {
		return Part{}, errors.Join(err, p.Old.Close(), p.New.Close())
	}
	return p, nil
}

// withoutRootOwner removes one change from the list: that of the owner of the tree's root directory. An
// ordinary user sees it because the fork could not be given the owner or group of the real root. Nothing in
// the sandbox can change that owner.
func withoutRootOwner(changes []diff.Change) []diff.Change {
	if len(changes) == 0 || changes[0].Path != "." || changes[0].What&diff.Owner == 0 {
		return changes
	}
	root := &changes[0]
	groups, err := os.Getgroups()
	if err != nil || int(root.Old.UID) == os.Geteuid() && slices.Contains(append(groups, os.Getegid()), int(root.Old.GID)) {
		return changes
	}
	root.New.UID, root.New.GID = root.Old.UID, root.Old.GID
	if root.What &^= diff.Owner; root.What == 0 {
		return changes[1:]
	}
	return changes
}

// isRealDirTime reports whether c is only a change of a directory's modification time that the host made
// after taken, the time since which the sandbox's base is the real tree itself, so that it did not come from
// the sandbox.
func isRealDirTime(c diff.Change, taken time.Time) bool {
	return c.What == diff.Time && c.Old.Mode.IsDir() && c.Old.CTime.After(taken)
}

// ListChanges returns the paths at which the two states of p may differ, as the backend lists them. walk is
// true if the backend cannot list such paths; the caller must then compare the whole trees.
func ListChanges(ctx context.Context, b snapshot.Backend, p Pair) (candidates []snapshot.Candidate, walk bool, err error) {
	var seq iter.Seq2[snapshot.Candidate, error]
	if p.Right == "" {
		if t, ok := b.(snapshot.ChangeLister); ok {
			seq = t.ListChanges(ctx, p.Left, p.Tree.Fork)
		}
	} else if t, ok := b.(snapshot.ChangeLister); ok {
		seq = t.ListChangesBetween(ctx, p.Left, p.Right)
	}
	if seq == nil {
		return nil, true, nil
	}
	return collect(ctx, seq)
}

// collect reads the candidates, the paths that may differ, which a backend yields. walk is true if the
// backend cannot list them, so that the whole trees must be compared. It checks ctx after each candidate.
func collect(ctx context.Context, seq iter.Seq2[snapshot.Candidate, error]) (candidates []snapshot.Candidate, walk bool, err error) {
	for t, err := range seq {
		if err := interrupted(ctx, "comparing", t.Path); err != nil {
			return nil, false, err
		}
		if errors.Is(err, errs.ErrNotSupported) {
			return nil, true, nil
		}
		if err != nil {
			return nil, false, err
		}
		candidates = append(candidates, t)
	}
	return candidates, false, nil
}

// interrupted returns an errs.ErrInterrupted with the operation op and the path if ctx has ended, so that a
// long comparison stops; else nil.
func interrupted(ctx context.Context, op, path string) error {
	return errs.With(op, path, ctx.Err())
}

// views returns how the two states of the pair p, such as a snapshot and the present fork of one tree, are
// reached on the host. It mounts nothing.
func views(ctx context.Context, b snapshot.Backend, p Pair) (left, right snapshot.View, err error) {
	if left, err = ViewOf(ctx, b, p.Tree, p.Left); err == nil {
		right, err = ViewOf(ctx, b, p.Tree, p.Right)
	}
	return left, right, err
}

// ViewOf returns the view of tree t as of the snapshot id or, with an empty id, of its fork in the present
// state. A view says how the tree is reached on the host.
func ViewOf(ctx context.Context, b snapshot.Backend, t catalog.Tree, id snapshot.ID) (snapshot.View, error) {
	if id == "" {
		f, err := b.LookupFork(ctx, t.Fork)
		return f.View, err
	}
	s, err := b.Lookup(ctx, id)
	return s.View, err
}

// OpenPair opens the two states of the pair p, such as a snapshot and the present fork of one tree, for
// reading; the caller closes both.
func OpenPair(ctx context.Context, b snapshot.Backend, p Pair) (old, new *os.File, err error) {
	left, right, err := views(ctx, b, p)
	if err != nil {
		return nil, nil, err
	}
	dirs, err := hostfs.OpenViews(ctx, isolate.OpenViews, p.Tree.Path, hostfs.MountOf("/", left), hostfs.MountOf("/", right))
	if err != nil {
		return nil, nil, err
	}
	return dirs[0], dirs[1], nil
}

// splitAll divides each part into one for the workspace and one for the rest of the tree, as split does.
// After an error all parts are closed.
func splitAll(parts []Part, workspace string) (all []Part, err error) {
	for _, p := range parts {
		some, serr := split(p, workspace)
		all, err = append(all, some...), errors.Join(err, serr)
	}
	if err != nil {
		(&Changes{Parts: all}).Close()
		return nil, err
	}
	return all, nil
}

// split divides the changes of a whole tree into a part for the workspace, with the directories opened anew
// there, and one for the rest of the tree. A tree without the workspace, or one that is the workspace, stays
// one part.
func split(whole Part, workspace string) ([]Part, error) {
	if whole.Root == workspace {
		whole.Workspace = true
		return []Part{whole}, nil
	}
	prefix, contained := strings.CutPrefix(workspace, strings.TrimSuffix(whole.Root, "/")+"/")
	if !contained {
		return []Part{whole}, nil
	}
	inside := whole
	inside.Root, inside.Workspace, inside.Changes = workspace, true, nil
	var rest []diff.Change
	for _, c := range whole.Changes {
		if hostfs.Within("/"+c.Path, "/"+prefix) {
			inside.Changes = append(inside.Changes, Rebase(c, prefix))
		} else {
			rest = append(rest, c)
		}
	}
	if len(inside.Changes) == 0 {
		return []Part{whole}, nil
	}
	var gone error
	if inside.Old, gone = hostfs.OpenBeneath(whole.Old, prefix); gone != nil {
		return []Part{whole}, nil //nolint:nilerr // the workspace itself was created or deleted
	}
	if inside.New, gone = hostfs.OpenBeneath(whole.New, prefix); gone != nil {
		return []Part{whole}, inside.Old.Close()
	}
	whole.Changes = rest
	if len(rest) == 0 {
		return []Part{inside}, errors.Join(whole.Old.Close(), whole.New.Close())
	}
	return []Part{inside, whole}, nil
}

// Rebase returns c, a change at or below the directory prefix of its tree, with its paths relative to prefix
// instead of the tree.
func Rebase(c diff.Change, prefix string) diff.Change {
	c.Path = hostfs.Relative(c.Path, prefix)
	if c.Moved != nil {
		c.Moved = &diff.Moved{From: hostfs.Relative(c.Moved.From, prefix), Entries: c.Moved.Entries}
	}
	for _, n := range []**diff.Node{&c.Old, &c.New} {
		if *n == nil || (*n).LinkOf == "" {
			continue
		}
		node := **n
		if hostfs.Within("/"+node.LinkOf, "/"+prefix) {
			node.LinkOf = hostfs.Relative(node.LinkOf, prefix)
		} else {
			node.LinkOf = "" // the other hard link is outside prefix
		}
		*n = &node
	}
	return c
}
