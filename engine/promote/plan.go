package promote

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A verb is what is done at a path.
type verb string

const (
	put   verb = "put"   // something new is renamed in
	swap  verb = "swap"  // what is there is exchanged with its new version
	drop  verb = "drop"  // what is there is renamed out
	alter verb = "alter" // metadata of what is there is set
)

// An op is one thing to do. A new or a deleted directory is one op with all
// that lies beneath it.
type op struct {
	verb verb
	path string
	// stage and name say where the new version waits, and where what was
	// displaced goes. Not for alter.
	stage int
	name  string
	// old is what the path holds before, new what it holds afterwards.
	old, new ident
	// was is the change time of old, as planned.
	was   vfs.Timestamp
	fixed bool // old may not be renamed, not even by root
	// olds and news are what lies beneath old and new where they are
	// directories, by path relative to the op's.
	olds, news map[string]ident
	// before and after are the metadata that alter sets.
	before, after meta

	change diff.Change
	seen   *diff.Node              // what the path holds, as planned
	below  []diff.Change           // beneath a new directory
	gone   map[string]*diff.Change // beneath an old one
	source string                  // a path of the target that new is a hard link of, or ""
}

// A planner looks at the real tree and says what is to be done.
type planner struct {
	ctx      context.Context
	t        Target
	from     Source
	base     Base
	real     dirs
	in       *os.File // the directory of the last op, and its stat
	inStat   vfs.Stat
	ops      []*op
	cover    *op // the op that a path may lie beneath
	steps    []Step
	drifts   []Drift
	already  []string
	skipped  []string
	places   map[string]*place
	stages   []*stage
	barred   pathlist.List // what permissions forbid
	youngest time.Time     // the latest change time that is relied on
	anchors  map[string]string
	lifted   map[string]string // why what lies in a directory has drifted, or ""
}

func (p *planner) close() { p.real.close() }

func plan(ctx context.Context, t Target, from Source, changes []diff.Change, base Base) (*planner, error) {
	p := &planner{ctx: ctx, t: t, from: from, base: base, real: dirs{root: t.Root}, places: map[string]*place{}, lifted: map[string]string{}}
	for i := range changes {
		if err := ctx.Err(); err != nil {
			return p, at(t.Path, err)
		}
		if err := p.one(changes[i]); err != nil {
			return p, at(changes[i].Path, err)
		}
	}
	for _, o := range p.ops {
		if o.olds != nil {
			if err := p.survey(o); err != nil {
				return p, at(o.path, err)
			}
		}
	}
	if err := p.link(); err != nil {
		return p, at(t.Path, err)
	}
	p.settle()
	slices.SortStableFunc(p.drifts, func(a, b Drift) int { return strings.Compare(a.Path, b.Path) })
	return p, nil
}

// settle waits until a later write to what was seen would give it another time:
// clocks of filesystems tick every few milliseconds.
func (p *planner) settle() {
	if age := time.Since(p.youngest); age >= 0 && age < diff.Racy {
		time.Sleep(diff.Racy - age)
	}
}

// one plans a change.
func (p *planner) one(c diff.Change) error {
	if c.New != nil && c.New.Mode&os.ModeSocket != 0 {
		p.skipped = append(p.skipped, c.Path)
		if c.Old == nil || c.Old.Mode&os.ModeSocket != 0 {
			return nil
		}
		c.Kind, c.New, c.What = diff.Deleted, nil, 0 // what it replaced is gone all the same
	}
	if p.cover != nil && diff.Inside(c.Path, p.cover.path) {
		p.covered(c)
		return nil
	}
	p.cover = nil
	dir, name, err := p.real.at(c.Path)
	var real *diff.Node
	var st vfs.Stat
	if err == nil {
		real, st, err = lookAt(dir, name)
	}
	above := err != nil && dir == nil
	switch {
	case above && missing(err) && c.Kind == diff.Deleted:
		p.already = append(p.already, c.Path)
		return nil
	case above && missing(err):
		p.drift(c.Path, "its directory is not there any more")
		return nil
	case err != nil && !missing(err):
		return err
	}
	todo, err := p.judge(c, real)
	if err != nil || !todo {
		return err
	}
	return p.todo(c, real, &st)
}

// todo records what is to be done for a change whose path has not drifted.
func (p *planner) todo(c diff.Change, real *diff.Node, st *vfs.Stat) error {
	o := &op{verb: verbOf(c, real), path: c.Path, seen: real}
	if o.verb == alter && c.Kind == diff.Added {
		c.What = diff.Mode | diff.Owner | diff.Xattrs
	}
	o.change = c
	if real != nil {
		o.old, o.was, o.fixed = identOf(st), st.CTime, st.Fixed
		p.rely(real)
	}
	if isDir(real) && o.verb != alter {
		o.olds, o.gone = map[string]ident{}, map[string]*diff.Change{}
	}
	if isDir(c.New) && o.verb != alter {
		o.news = map[string]ident{}
	}
	p.ops = append(p.ops, o)
	p.steps = append(p.steps, Step{c, real})
	if o.olds != nil || o.news != nil {
		p.cover = o
	}
	if o.verb == alter {
		o.before = metaOf(real, c.What)
		o.after = metaOf(c.New, c.What)
		return nil
	}
	return p.placeOf(o)
}

func verbOf(c diff.Change, real *diff.Node) verb {
	switch {
	case c.New == nil:
		return drop
	case real == nil:
		return put
	case isDir(real) && isDir(c.New):
		return alter
	case c.Old == nil || !alike(c.Old, real, true): // an earlier version of ours
		return swap
	case c.What&(diff.Type|diff.Content|diff.Target|diff.Device) != 0:
		return swap
	}
	return alter
}

// covered gives a change to the op that it is a part of.
func (p *planner) covered(c diff.Change) {
	switch c.Kind {
	case diff.Added:
		p.cover.below = append(p.cover.below, c)
		p.steps = append(p.steps, Step{c, nil})
	case diff.Deleted:
		if p.cover.gone != nil {
			p.cover.gone[c.Path] = &c
		}
	}
}

// survey looks at all that lies beneath a directory that is to go.
func (p *planner) survey(o *op) error {
	dir, err := p.real.dir(o.path)
	if err != nil {
		return err
	}
	return walk(dir, "", func(rel string, in *os.File, name string) error {
		path := join(o.path, rel)
		real, st, err := lookAt(in, name)
		if err != nil {
			return err
		}
		c := o.gone[path]
		switch {
		case st.MountRoot || st.Dev != o.seen.Dev:
			p.drift(path, "another filesystem is mounted there")
			return nil
		case c == nil:
			p.drift(path, "it is new, in a directory that the changes delete")
			return nil
		}
		if todo, err := p.judge(*c, real); err != nil || !todo {
			return err
		}
		o.olds[rel] = identOf(&st)
		p.rely(real)
		p.steps = append(p.steps, Step{*c, real})
		return nil
	})
}

func (p *planner) rely(n *diff.Node) {
	if n.CTime.After(p.youngest) {
		p.youngest = n.CTime
	}
}

func (p *planner) drift(path, why string) { p.drifts = append(p.drifts, Drift{path, why}) }

// walk calls f for everything beneath an open directory, a directory before
// what lies in it. rel is relative to that directory, name in the open one.
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
		path := join(rel, e.Name)
		if err := f(path, in, e.Name); err != nil {
			return err
		}
		if e.Type != unix.DT_DIR && e.Type != unix.DT_UNKNOWN {
			continue
		}
		sub, err := vfs.OpenBeneath(int(in.Fd()), e.Name, vfs.OPath|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if missing(err) {
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
