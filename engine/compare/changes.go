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
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate"
)

// Changes are what differs between two states of a sandbox, in parts: the
// workspace first, then each tree without it. Parts without changes are left
// out.
type Changes struct {
	Parts []Part
}

// A Part is the changes beneath one directory.
type Part struct {
	// Root is the directory that the paths of Changes are relative to.
	Root string
	// Workspace: Root is the sandbox's workspace.
	Workspace bool
	Changes   []diff.Change
	// Renames are those that FindRenames has found among Changes.
	Renames []diff.Rename
	// Old and New are Root in both states, open for reading.
	Old, New *os.File
	// Tree is the tree that Root lies in, Taken the instant of its base, and
	// Frozen whether the base has kept still since.
	Tree   string
	Taken  time.Time
	Frozen bool
	Opt    diff.Options // that Changes were found with
}

// Len is the number of changes in all parts.
func (c *Changes) Len() int {
	n := 0
	for _, p := range c.Parts {
		n += len(p.Changes)
	}
	return n
}

// Elsewhere is how many of them lie outside the workspace.
func (c *Changes) Elsewhere() (n int) {
	for _, p := range c.Parts {
		if !p.Workspace {
			n += diff.Count(p.Changes)
		}
	}
	return n
}

// Close gives back the descriptors.
func (c *Changes) Close() {
	for _, p := range c.Parts {
		p.Old.Close()
		p.New.Close()
	}
}

// Diff compares two states of a sandbox: named ones, or "" which is its base on
// the left and its files as they are now on the right. Where the filesystem can
// tell, the cost grows with what changed, not with the trees.
// Errors: errs.ErrNotFound, and those of diff.Trees.
func (cm *Comparer) Diff(ctx context.Context, name, from, to string) (*Changes, error) {
	rec, err := cm.cat.Get(name)
	if err != nil {
		return nil, err
	}
	cm.sandboxes.ReportMissingWorkspace("comparing", rec)
	c, err := cm.changesBetween(ctx, rec, from, to)
	if err == nil {
		cm.baseline.Record(ctx, rec)
	}
	return c, err
}

func (cm *Comparer) Changes(ctx context.Context, rec *catalog.Record) (*Changes, error) {
	return cm.changesBetween(ctx, rec, "", "")
}

func (cm *Comparer) changesBetween(ctx context.Context, rec *catalog.Record, from, to string) (*Changes, error) {
	return cm.ChangesAt(ctx, rec, from, to, nil)
}

// ChangesAt is changesBetween where what was touched is known of some trees.
func (cm *Comparer) ChangesAt(ctx context.Context, rec *catalog.Record, from, to string, looked map[string][]snapshot.Candidate) (*Changes, error) {
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
		p := Pair{Tree: t, Left: left[i]}
		p.candidates, p.listed = looked[t.Path]
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

func workspaceFirst(parts []Part) {
	for i, p := range parts {
		if p.Workspace {
			copy(parts[1:i+1], parts[:i])
			parts[0] = p
			return
		}
	}
}

// A Pair is two states of one tree; right is "" for the fork as it is.
type Pair struct {
	Tree        catalog.Tree
	Left, Right snapshot.ID
	// touches are where they may differ, if looked.
	candidates []snapshot.Candidate
	listed     bool
}

// comparePair finds the changes of one tree. A tree in which nothing was touched
// costs no mount.
func (cm *Comparer) comparePair(ctx context.Context, rec *catalog.Record, p Pair) ([]Part, error) {
	b, err := cm.host.BackendOf(ctx, p.Tree)
	if err != nil {
		return nil, err
	}
	touches, walk := p.candidates, false
	if !p.listed {
		touches, walk, err = ListChanges(ctx, b, p)
	}
	if err != nil || len(touches) == 0 && !walk {
		return nil, err
	}
	left, right, err := views(ctx, b, p)
	if err != nil {
		return nil, err
	}
	parts, err := cm.compareIn(rec.Workspace, p.Tree.Path, touches, walk, func(at place, touches []snapshot.Candidate, walk bool) (Part, error) {
		dirs, err := at.open(ctx, state{b: b, view: left}, state{b: b, view: right})
		if err != nil {
			return Part{}, err
		}
		whole := Part{Root: at.dir, Old: dirs[0], New: dirs[1], Tree: p.Tree.Path, Taken: p.Tree.Taken, Frozen: p.Tree.Frozen}
		whole.Opt = diff.Options{
			Skip: cm.host.Skip(b, at.dir), OneFilesystem: b.Facts().Unit == snapshot.ByFile,
			SameInodes: b.Facts().KeepsInodes, Taken: p.Tree.Taken, OverlayViews: true,
		}
		whole.Changes, err = whole.find(ctx, touches, walk)
		if !hostfs.Privileged() {
			whole.Changes = withoutRootOwner(whole.Changes)
		}
		if !p.Tree.Frozen {
			whole.Changes = slices.DeleteFunc(whole.Changes, func(c diff.Change) bool { return isRealDirTime(c, p.Tree.Taken) })
		}
		return whole.closeIfEmpty(err)
	})
	if err != nil {
		return nil, err
	}
	return splitAll(parts, rec.Workspace)
}

// find compares the two states of a part.
func (p *Part) find(ctx context.Context, touches []snapshot.Candidate, walk bool) ([]diff.Change, error) {
	if walk {
		return diff.Trees(ctx, p.Old, p.New, p.Opt)
	}
	return diff.At(ctx, p.Old, p.New, Sequence(touches), p.Opt)
}

// orNothing closes a part without changes, or after an error.
func (p Part) closeIfEmpty(err error) (Part, error) {
	if err != nil || len(p.Changes) == 0 {
		return Part{}, errors.Join(err, p.Old.Close(), p.New.Close())
	}
	return p, nil
}

// withoutRootOwner takes the owner of a tree's root back that an ordinary user
// could not give to the sandbox's: a directory of root's, or one whose group he is
// not in. Nothing in his sandbox can change it.
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

// realOnly: a directory of a live base differs in nothing but its time, and it is
// the real one that has moved on since the fork.
func isRealDirTime(c diff.Change, taken time.Time) bool {
	return c.What == diff.Time && c.Old.Mode.IsDir() && c.Old.CTime.After(taken)
}

// ListChanges asks the backend where the two states may differ; walk means that it
// cannot tell.
func ListChanges(ctx context.Context, b snapshot.Backend, p Pair) (touches []snapshot.Candidate, walk bool, err error) {
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
	return collect(seq)
}

// collect lists touched places; walk means that the backend could not tell.
func collect(seq iter.Seq2[snapshot.Candidate, error]) (touches []snapshot.Candidate, walk bool, err error) {
	for t, err := range seq {
		if errors.Is(err, errs.ErrNotSupported) {
			return nil, true, nil
		}
		if err != nil {
			return nil, false, err
		}
		touches = append(touches, t)
	}
	return touches, false, nil
}

func Sequence(touches []snapshot.Candidate) func(func(snapshot.Candidate, error) bool) {
	return func(yield func(snapshot.Candidate, error) bool) {
		for _, t := range touches {
			if !yield(t, nil) {
				return
			}
		}
	}
}

// views are how both states are reached.
func views(ctx context.Context, b snapshot.Backend, p Pair) (left, right snapshot.View, err error) {
	if left, err = ViewOf(ctx, b, p.Tree, p.Left); err == nil {
		right, err = ViewOf(ctx, b, p.Tree, p.Right)
	}
	return left, right, err
}

// ViewOf is how a snapshot of a tree is reached, or, with no id, its fork.
func ViewOf(ctx context.Context, b snapshot.Backend, t catalog.Tree, id snapshot.ID) (snapshot.View, error) {
	if id == "" {
		f, err := b.LookupFork(ctx, t.Fork)
		return f.View, err
	}
	s, err := b.Lookup(ctx, id)
	return s.View, err
}

// OpenPair opens both states for reading.
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

// splitAll splits each of the parts of a tree. After an error none is open.
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

// split takes the workspace's changes out of those of the tree that holds it.
func split(whole Part, workspace string) ([]Part, error) {
	if whole.Root == workspace {
		whole.Workspace = true
		return []Part{whole}, nil
	}
	prefix, beneath := strings.CutPrefix(workspace, strings.TrimSuffix(whole.Root, "/")+"/")
	if !beneath {
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
		return []Part{whole}, nil //nolint:nilerr // the workspace itself came or went
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

// Moved makes a change's paths relative to a directory beneath the tree.
func Rebase(c diff.Change, prefix string) diff.Change {
	c.Path = hostfs.Relative(c.Path, prefix)
	for _, n := range []**diff.Node{&c.Old, &c.New} {
		if *n == nil || (*n).LinkOf == "" {
			continue
		}
		node := **n
		if hostfs.Within("/"+node.LinkOf, "/"+prefix) {
			node.LinkOf = hostfs.Relative(node.LinkOf, prefix)
		} else {
			node.LinkOf = "" // its other name lies elsewhere
		}
		*n = &node
	}
	return c
}
