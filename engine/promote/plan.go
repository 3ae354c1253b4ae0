package promote

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/promote/nodes"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A verb says how one step of a promotion changes its path: by renaming files or by setting metadata.
type verb string

const (
	put   verb = "put"   // rename a new node into the tree
	swap  verb = "swap"  // exchange a node with its new version
	drop  verb = "drop"  // rename a node out of the tree
	alter verb = "alter" // set a node's metadata
)

// An op is one step of a promotion: how one path of the real tree changes. A new or deleted directory is one
// op, with everything below it.
type op struct {
	verb verb
	path string
	// stage and name are the location of the new version before the move, and of the old
	// version afterwards. An alter does not use them.
	stage int
	name  string
	// old identifies the node at the path before the op, new the node afterwards.
	old, new nodes.Ident
	// oldCTime is the change time of the old node when the plan was made.
	oldCTime vfs.Timestamp
	fixed    bool // old is immutable or append-only
	// movedBack is set once this process has reverted a put or swap: new is in the stage again.
	movedBack bool
	// oldTree and newTree identify the nodes below old and new, if these are directories, by
	// path relative to the op's path.
	oldTree, newTree map[string]nodes.Ident
	// before and after are the metadata of an alter.
	before, after nodes.Meta

	change    diff.Change
	found     *diff.Node              // the node in the plan
	additions []diff.Change           // below a new directory
	deletions map[string]*diff.Change // below an old directory
	source    string                  // a path of the target that new becomes a hard link of, or ""
}

// A planner compares changes with the real tree and decides on the steps of a promotion. It collects the
// reasons why the promotion must be refused.
type planner struct {
	t         Target
	from      Source
	base      Base
	real      nodes.Dirs
	in        *os.File // the directory of the last op, its stat, and its [nodes.Domain]
	inStat    vfs.Stat
	inDomain  string
	ops       []*op
	within    *op // the op of a directory that may contain the next path
	steps     []diff.Change
	drifts    []Drift
	already   []string
	skipped   []string
	changed   map[string]*nodes.ChangedDir
	stages    []*stage
	denied    pathlist.List // refused for lack of permissions
	latest    time.Time     // the latest change time that the plan relies on
	linked    bool          // a step changes or makes a file with several names (hard links)
	anchors   map[string]string
	kept      []*op             // hard links that already are as wanted, with no verb
	dirDrifts map[string]string // why files in a directory have drifted, or ""
}

// plan decides on the steps of a promotion. The caller closes the directory that p.real holds open, unless there is an
// error.
func plan(ctx context.Context, t Target, from Source, changes []diff.Change, base Base) (p *planner, err error) {
	p = &planner{t: t, from: from, base: base, real: nodes.Dirs{Root: t.Root}, changed: map[string]*nodes.ChangedDir{}, dirDrifts: map[string]string{}}
	defer func() {
		if err != nil {
			p.real.Close()
		}
	}()
	for i := range changes {
		if err := ctx.Err(); err != nil {
			return p, at(t.Path, err)
		}
		if err := p.planChange(ctx, changes[i]); err != nil {
			return p, at(changes[i].Path, err)
		}
	}
	for _, o := range p.ops {
		if o.oldTree != nil {
			if err := p.checkDeleted(ctx, o); err != nil {
				return p, at(o.path, err)
			}
		}
	}
	if p.linked {
		if err := p.planLinks(); err != nil {
			return p, at(t.Path, err)
		}
	}
	p.waitForClock()
	slices.SortStableFunc(p.drifts, func(a, b Drift) int { return strings.Compare(a.Path, b.Path) })
	return p, nil
}

// waitForClock waits until any later write to a file gets another change time than those that the planner saw: the
// clocks of filesystems tick every few milliseconds, or every second.
func (p *planner) waitForClock() {
	time.Sleep(diff.Unsettled(p.latest))
}

// planChange compares a change with the real node at its path. It adds to p a step of the promotion, a drift,
// a path that is already as wanted, or a skipped socket.
func (p *planner) planChange(ctx context.Context, c diff.Change) error {
	if c.New != nil && c.New.Mode&os.ModeSocket != 0 {
		p.skipped = append(p.skipped, c.Path)
		if c.Old == nil || c.Old.Mode&os.ModeSocket != 0 {
			return nil
		}
		c.Kind, c.New, c.What = diff.Deleted, nil, 0 // the node that the socket replaced is gone all the same
	}
	if p.within != nil && diff.Inside(c.Path, p.within.path) {
		p.addToParent(c)
		return nil
	}
	p.within = nil
	dir, name, err := p.real.At(c.Path)
	var real *diff.Node
	var st vfs.Stat
	if err == nil {
		real, st, err = nodes.Read(dir, name)
	}
	above := err != nil && dir == nil
	switch {
	case above && nodes.Missing(err) && c.Kind == diff.Deleted:
		p.already = append(p.already, c.Path)
		return nil
	case above && nodes.Missing(err):
		p.drift(c.Path, "its directory no longer exists")
		return nil
	case err != nil && !nodes.Missing(err):
		return err
	}
	todo, err := p.needed(ctx, c, real)
	if err != nil || !todo {
		return err
	}
	return p.addOp(c, real, &st)
}

// addOp adds a step to the promotion for a change whose path has not drifted. real is the real node there,
// nil for none, and st its attributes.
func (p *planner) addOp(c diff.Change, real *diff.Node, st *vfs.Stat) error {
	o := &op{verb: verbOf(c, real), path: c.Path, found: real}
	if o.verb == alter && c.Kind == diff.Added {
		c.What = diff.Mode | diff.Owner | diff.Xattrs
	}
	o.change = c
	p.linked = p.linked || real.Shared() || c.New.Shared()
	if real != nil {
		o.old, o.oldCTime, o.fixed = nodes.IdentOf(st), st.CTime, st.Fixed
		p.relyOn(real)
	}
	if real.IsDir() && o.verb != alter {
		o.oldTree, o.deletions = map[string]nodes.Ident{}, map[string]*diff.Change{}
	}
	if c.New.IsDir() && o.verb != alter {
		o.newTree = map[string]nodes.Ident{}
	}
	p.ops = append(p.ops, o)
	p.steps = append(p.steps, c)
	if o.oldTree != nil || o.newTree != nil {
		p.within = o
	}
	if o.verb == alter {
		o.before = nodes.MetaOf(real, c.What)
		o.after = nodes.MetaOf(c.New, c.What)
		return nil
	}
	return p.prepareDir(o)
}

func verbOf(c diff.Change, real *diff.Node) verb {
	switch {
	case c.New == nil:
		return drop
	case real == nil:
		return put
	case real.IsDir() && c.New.IsDir():
		return alter
	case c.Old == nil || !nodes.SameMetadata(c.Old, real, true): // an earlier version that snapfs promoted
		return swap
	case c.What&(diff.Type|diff.Content|diff.Target|diff.Device) != 0:
		return swap
	}
	return alter
}

// addToParent adds a change to p.within, the step for a new or deleted directory in which the change lies.
func (p *planner) addToParent(c diff.Change) {
	switch c.Kind {
	case diff.Added:
		p.within.additions = append(p.within.additions, c)
		p.steps = append(p.steps, c)
	case diff.Deleted:
		if p.within.deletions != nil {
			p.within.deletions[c.Path] = &c
		}
	}
}

// checkDeleted compares everything below a directory that the promotion's step o deletes with the changes. A
// node that they do not delete, such as a new file or a mount, is drift; the others are added to p.steps.
func (p *planner) checkDeleted(ctx context.Context, o *op) error {
	dir, err := p.real.Dir(o.path)
	if err != nil {
		return err
	}
	return walk(dir, "", func(rel string, in *os.File, name string) error {
		path := nodes.Join(o.path, rel)
		real, st, err := nodes.Read(in, name)
		if err != nil {
			return err
		}
		c := o.deletions[path]
		switch {
		case st.MountRoot || st.Dev != o.found.Dev:
			p.drift(path, "another filesystem is mounted there")
			return nil
		case c == nil:
			p.drift(path, "new file in a directory that the changes delete")
			return nil
		}
		if todo, err := p.needed(ctx, *c, real); err != nil || !todo {
			return err
		}
		o.oldTree[rel] = nodes.IdentOf(&st)
		p.relyOn(real)
		p.steps = append(p.steps, *c)
		return nil
	})
}

func (p *planner) relyOn(n *diff.Node) {
	if n.CTime.After(p.latest) {
		p.latest = n.CTime
	}
}

func (p *planner) drift(path, why string) { p.drifts = append(p.drifts, Drift{path, why}) }

// walk calls f for everything below an open directory, a directory before its content. rel is the path
// relative to that directory, and name the name in the open directory in.
func walk(dir *os.File, rel string, f func(rel string, in *os.File, name string) error) error {
	in, err := vfs.OpenDir(int(dir.Fd()), ".")
	if err != nil {
		return err
	}
	defer in.Close()
	list, err := vfs.Entries(int(in.Fd()))
	if err != nil {
		return err
	}
	vfs.SortEntries(list)
	for _, e := range list {
		path := nodes.Join(rel, e.Name)
		if err := f(path, in, e.Name); err != nil {
			return err
		}
		if e.Type != unix.DT_DIR && e.Type != unix.DT_UNKNOWN {
			continue
		}
		sub, err := vfs.OpenBeneath(int(in.Fd()), e.Name, vfs.OPath|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if nodes.Missing(err) {
			continue // no directory
		}
		if err != nil {
			return err
		}
		err = walk(sub, path, f)
		sub.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
