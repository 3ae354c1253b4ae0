package merge

import (
	"bytes"
	"io"

	"github.com/snapfs/snapfs/engine/diff"
)

// raise meets a conflict about a thing, and about all that lies beneath any of its
// places and those in more: it is answered, or all of it is left as it is.
func (m *merger) raise(t *thing, kind Kind, why string, more ...string) error {
	c := Conflict{Path: m.place(t), Kind: kind, Base: t.on[base].node, Mine: t.on[mine].node, Real: t.on[real].node, Why: why}
	for tree, path := range [3]*string{&c.BasePath, &c.MinePath, &c.RealPath} {
		if s := t.on[tree]; s.path != c.Path {
			*path = s.path
		}
	}
	return m.settle(t, c, more...)
}

// place is where the merged tree would have a thing.
func (m *merger) place(t *thing) string {
	if !t.has(mine) && !t.has(real) {
		return t.first()
	}
	path, _ := m.things.spot(t)
	return path
}

// settle has a conflict answered.
func (m *merger) settle(t *thing, c Conflict, more ...string) (err error) {
	if c.Marked, err = m.marked(&c); err != nil {
		return err
	}
	c.Alone = c.alone()
	all, places := m.covered(t, c.roots(more))
	c.about(all)
	choice, key := Ask, string(c.Kind)+" "+c.Path
	if m.in.Choose != nil && !m.asked[key] {
		m.asked[key] = true
		choice = m.in.Choose(c)
	}
	if choice == Ask {
		m.result.Conflicts = append(m.result.Conflicts, c)
		return m.leaveAll(all, places, len(m.result.Conflicts)-1)
	}
	draft := t.end.node
	for _, x := range all {
		if choice != Built || x != t {
			if err := m.unbuild(x); err != nil {
				return err
			}
		}
		x.done, x.end, x.chosen = true, end{}, 0
		switch {
		case choice == Mine:
			x.chosen, x.end = mine, x.as(mine)
		case choice == Theirs:
			x.chosen, x.end = real, x.as(real)
		case choice == Built && x != t && x.on[real].path != c.Path && !beneath(x.on[real].path, c.Path):
			x.chosen, x.end = real, x.as(real)
		}
	}
	if choice == Built {
		for _, like := range []*diff.Node{t.on[mine].node, t.on[real].node} {
			if draft == nil || !draft.Mode.IsRegular() {
				draft = like
			}
		}
		t.end, err = m.chosenBuilt(c.Path, draft)
	}
	return err
}

// roots are the places of a conflict, which is about all beneath them; none where it
// is about a directory alone.
func (c *Conflict) roots(more []string) []string {
	if c.Alone {
		return nil
	}
	return append([]string{c.Path, c.BasePath, c.MinePath, c.RealPath}, more...)
}

// covered is a thing, and all that any tree has at paths or beneath them, or at any
// other place of what lies there; and all these places.
func (m *merger) covered(t *thing, paths []string) (all []*thing, places []string) {
	all, seen, told := []*thing{t}, map[*thing]bool{t: true}, roots{}
	add := func(path string) {
		if told.add(path) {
			places = append(places, path)
		}
	}
	for _, path := range paths {
		add(path)
	}
	for i := 0; i < len(places); i++ {
		for tree := range m.things.at {
			m.things.under(tree, places[i], func(x *thing) {
				if seen[x] || x.left {
					return
				}
				all, seen[x] = append(all, x), true
				for _, s := range x.on {
					add(s.path)
				}
			})
		}
	}
	return all, places
}

// alone reports whether a conflict is about a directory itself and nothing in it.
func (c *Conflict) alone() bool {
	switch c.Kind {
	case Mode, Owner, Xattrs:
		return isDir(c.Mine) && isDir(c.Real) && c.RealPath == ""
	}
	return false
}

// marked reports whether Marks can write a conflict.
func (m *merger) marked(c *Conflict) (bool, error) {
	switch c.Kind {
	case Content:
		return true, nil
	case AddAdd, NoBase:
	default:
		return false, nil
	}
	for tree, s := range c.states() {
		if tree == base {
			continue
		}
		if ok, err := m.in.isText(tree, s); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// states are the three versions of a conflict.
func (c *Conflict) states() (all [3]state) {
	for tree, n := range [3]*diff.Node{c.Base, c.Mine, c.Real} {
		path := [3]string{c.BasePath, c.MinePath, c.RealPath}[tree]
		if path == "" {
			path = c.Path
		}
		all[tree] = state{path: path, node: n}
	}
	return all
}

// isText reports whether a tree has a text.
func (in *Input) isText(tree int, s state) (bool, error) {
	if !isFile(s.node) || s.node.Size > TextMax {
		return false, nil
	}
	f, err := in.open(tree, s)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var head bytes.Buffer
	if _, err := io.Copy(&head, io.LimitReader(f, sniffed)); err != nil {
		return false, fail(s.path, err)
	}
	return !isBinary(head.Bytes()), nil
}
