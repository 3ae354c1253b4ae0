package layer

import "path"

// Touched calls tell with each place where the stacks of layers of a and b, over one tree,
// may differ, with tree where all beneath it may. Nothing is missed. Of what the
// layers have in common nothing is read but their logs. Cost: in proportion to what
// was changed in all of them. Errors are those of [Open], and of tell.
func Touched(a, b Options, tell func(path string, tree bool) error) error {
	common := 0
	for common < min(len(a.Layers), len(b.Layers)) && a.Layers[common] == b.Layers[common] {
		common++
	}
	t := touches{nodes: map[uint64]struct{}{}, names: map[binding]struct{}{}, tell: tell}
	for _, stack := range [][]string{a.Layers[common:], b.Layers[common:]} {
		for _, l := range stack {
			if err := t.collect(l); err != nil {
				return err
			}
		}
	}
	var sides [2]*atlas
	for i, stack := range []Options{a, b} {
		f, err := table(stack)
		if err != nil {
			return err
		}
		defer f.release()
		sides[i] = newAtlas(f)
	}
	return t.places(sides)
}

// table is what the logs of layers tell, with no layer open to be written to.
func table(o Options) (*FS, error) {
	o.ReadOnly = true
	if len(o.Layers) > 0 {
		return Open(o)
	}
	return openRoot(o)
}

// touches are what the logs of some layers tell of, in whichever way.
type touches struct {
	nodes map[uint64]struct{}
	names map[binding]struct{}
	tell  func(path string, tree bool) error
}

type binding struct {
	dir  uint64
	name string
}

func (t *touches) collect(layer string) error {
	d, err := openDir(layer, false)
	if err != nil {
		return err
	}
	defer d.close()
	return d.records(func(kind byte, r *reader) {
		switch kind {
		case recordNode:
			var n node
			r.node(&n)
			t.nodes[n.id] = struct{}{}
		case recordName, recordUnname:
			t.names[binding{r.num(), r.text()}] = struct{}{}
			if kind == recordName {
				r.num()
			}
		default:
			r.skip(kind) // the name of what is gone went, too
		}
	})
}

// places tells them, wherever either side has them.
func (t *touches) places(sides [2]*atlas) error {
	for b := range t.names {
		x, y := sides[0].f.nodes[b.dir], sides[1].f.nodes[b.dir]
		same := leadsAlike(x, y, b.name)
		for i, dir := range []*node{x, y} {
			if dir == nil {
				continue
			}
			if at, ok := sides[i].dir(dir); ok {
				if err := t.tell(path.Join(at, b.name), !same); err != nil {
					return err
				}
			}
		}
	}
	for id := range t.nodes {
		for _, side := range sides {
			n := side.f.nodes[id]
			if n == nil {
				continue
			}
			paths := side.paths(n)
			if !n.isDir() && n.from != nil && int(n.nlink) > len(paths) {
				paths = append(paths, "") // it has names below that nobody asked for
			}
			for _, p := range paths {
				if err := t.tell(path.Join(".", p), p == ""); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// leadsAlike reports whether two states of a directory have under a name what may differ
// in itself alone: the same node, or both what the tree below has there, whether the
// table says so or nothing. A number that was given in a layer may be another's in another.
func leadsAlike(x, y *node, name string) bool {
	if x != nil && y != nil && x.entries[name] != nil && y.entries[name] != nil && x.entries[name].id < made {
		return x.entries[name].id == y.entries[name].id
	}
	return x.leadsBelow(y, name) && y.leadsBelow(x, name)
}

// leadsBelow reports whether a directory has under a name what the tree below has there.
// One that is nil is not changed, if the other is of the tree below.
func (n *node) leadsBelow(other *node, name string) bool {
	if n == nil {
		return other != nil && other.from != nil
	}
	to, known := n.entries[name]
	switch {
	case n.from == nil || known && to == nil:
		return false
	case !known:
		return true
	}
	return to.from != nil && to.from.name == name && to.from.dir != nil && to.from.dir.path() == n.from.path()
}

// An atlas knows where the nodes of a table are.
type atlas struct {
	f *FS
	// above are the names that nodes have by the table.
	above map[*node][]nameKey
	// places are the nodes by where the tree below has them.
	places map[string]*node
	// asked are those whose paths are being looked for: logs of before may have names in a ring.
	asked map[*node]bool
}

func newAtlas(f *FS) *atlas {
	a := &atlas{f: f, above: map[*node][]nameKey{}, places: map[string]*node{}, asked: map[*node]bool{}}
	for _, dir := range f.nodes {
		for name, n := range dir.entries {
			if n != nil {
				a.above[n] = append(a.above[n], nameKey{dir, name})
			}
		}
		if dir.from != nil {
			a.places[dir.from.path()] = dir
		}
	}
	return a
}

// paths are all that a node is known by.
func (a *atlas) paths(n *node) (all []string) {
	if n == a.f.root {
		return []string{"."}
	}
	if a.asked[n] {
		return nil
	}
	a.asked[n] = true
	defer delete(a.asked, n)
	for _, k := range a.above[n] {
		if at, ok := a.dir(k.dir); ok {
			all = append(all, path.Join(at, k.name))
		}
	}
	if n.from != nil {
		if at, ok := a.below(n.from); ok {
			all = append(all, at)
		}
	}
	return all
}

// dir is the path of a directory, where it has one.
func (a *atlas) dir(n *node) (string, bool) {
	all := a.paths(n)
	if len(all) == 0 {
		return "", false
	}
	return all[0], true
}

// below is the path of what is still where the tree below has it.
func (a *atlas) below(o *origin) (string, bool) {
	if o.dir == nil {
		return ".", true
	}
	parent := a.places[o.dir.path()]
	if parent == nil { // it is not changed itself
		at, ok := a.below(o.dir)
		return path.Join(at, o.name), ok
	}
	if _, other := parent.entries[o.name]; other {
		return "", false
	}
	at, ok := a.dir(parent)
	return path.Join(at, o.name), ok
}
