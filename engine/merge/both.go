package merge

import (
	"io/fs"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
)

// both merges a thing that both sides have.
func (m *merger) both(t *thing) error {
	path, ok := m.things.spot(t)
	if !ok {
		return m.raise(t, RenameRename, says(mine, "renamed it to "+quote(t.on[mine].path))+", "+says(real, "to "+quote(t.on[real].path)))
	}
	a, b := t.on[mine], t.on[real]
	switch {
	case a.node.Mode.Type() != b.node.Mode.Type():
		return m.types(t, path)
	case !t.has(base):
		return m.added(t)
	case t.on[base].node.Mode.Type() != b.node.Mode.Type():
		return m.became(t, path)
	}
	return m.aspects(t, path)
}

// types decides where the sides are of different types.
func (m *merger) types(t *thing, path string) error {
	a, b := t.on[mine], t.on[real]
	if t.has(base) && a.what&diff.Type == 0 && !t.touched(mine) && !m.things.went(mine, t) {
		t.end = end{path, b.node, fromReal}
		return m.carry(t)
	}
	if t.has(base) && b.what&diff.Type == 0 && !t.touched(real) && !m.things.went(real, t) {
		t.end = end{path, a.node, fromMine}
		return nil
	}
	kind := Type
	if isDir(a.node) != isDir(b.node) && (m.full(mine, t) || m.full(real, t)) {
		kind = Directory
	}
	did := func(side int) string {
		switch s := t.on[side]; {
		case t.has(base) && m.things.went(side, t):
			return "renamed it from " + quote(t.on[base].path)
		case t.has(base) && s.what&diff.Type == 0:
			return "changed " + aspects(s.what)
		}
		return "made it a " + diff.TypeName(t.on[side].node.Mode)
	}
	return m.raise(t, kind, says(mine, did(mine))+", "+says(real, did(real)))
}

// full reports whether a thing is a directory on a side in which something is known
// to lie.
func (m *merger) full(side int, t *thing) bool {
	found := 0
	if t.isDir(side) {
		m.things.under(side, t.on[side].path, func(*thing) { found++ })
	}
	return found > 1
}

// became decides where both sides made one other type of a thing. They must have
// made the same, as with what both have added.
func (m *merger) became(t *thing, path string) error {
	t.on[base] = state{path: t.on[base].path}
	err := m.added(t)
	if t.end.node != nil && t.chosen == 0 {
		t.end.path = path
	}
	return err
}

// added merges what both sides have made, of one type.
func (m *merger) added(t *thing) error {
	a, b := t.on[mine].node, t.on[real].node
	n, bad := metadata(nil, a, b)
	if isFile(a) {
		same, err := m.sameContent(t)
		if err != nil {
			return err
		}
		if !same {
			return m.raise(t, AddAdd, "the sandbox and the real tree both added it, with different content")
		}
	}
	if len(bad) > 0 {
		return m.raise(t, bad[0], "the sandbox and the real tree both added it, with different "+kindName(bad[0]))
	}
	if m.relinkedApart(t) {
		return m.raiseLinks(t)
	}
	t.end = end{t.on[real].path, n, fromReal}
	return nil
}

// aspects merges a thing aspect by aspect.
func (m *merger) aspects(t *thing, path string) error {
	a, b := t.on[mine], t.on[real]
	if m.relinkedApart(t) {
		return m.raiseLinks(t)
	}
	n, bad := metadata(t.on[base].node, a.node, b.node)
	t.end = end{path, n, fromReal}
	if isFile(n) {
		conflict, err := m.content(t)
		if conflict || err != nil {
			return err
		}
	}
	m.time(t)
	if len(bad) > 0 {
		why := "the sandbox and the real tree both changed its " + kindName(bad[0])
		return m.raise(t, bad[0], why)
	}
	return m.carry(t)
}

// content decides where the content of a regular file comes from.
func (m *merger) content(t *thing) (conflict bool, err error) {
	a, b := t.on[mine], t.on[real]
	n := t.end.node
	take := func(s state, from source) {
		t.end.from, n.Size, n.MTime, n.CTime, n.Ino, n.Dev, n.NLink = from, s.node.Size, s.node.MTime, s.node.CTime, s.node.Ino, s.node.Dev, s.node.NLink
	}
	switch {
	case a.what&b.what&diff.Content != 0:
		return m.contents(t)
	case a.what&diff.Content != 0:
		take(a, fromMine)
	case b.what&diff.Content != 0:
		take(b, fromReal)
	case t.end.path != b.path || m.links.relinked(mine, t):
		take(a, fromMine) // it has to be made anew
	}
	return false, nil
}

// time gives a node that stays as real has it a time that mine alone has given it,
// and what else mine has changed its own.
func (m *merger) time(t *thing) {
	a, b := t.on[mine], t.on[real]
	n := t.end.node
	switch alone := a.what&diff.Time != 0 && b.what&diff.Time == 0; {
	case isFile(n) && (t.end.from != fromReal || b.what&diff.Content != 0):
	case a.what&(diff.Target|diff.Device) != 0 && b.what&(diff.Target|diff.Device) == 0, alone:
		n.MTime = a.node.MTime
	}
}

// relinkedApart reports whether a side made a thing one file with others than it was
// before, while the other side changed it.
func (m *merger) relinkedApart(t *thing) bool {
	byMine, byReal := m.links.relinked(mine, t), m.links.relinked(real, t)
	switch {
	case !byMine && !byReal, m.links.sameLinks(t):
		return false
	case byMine && byReal:
		return t.has(base) && (t.touched(mine) || t.touched(real)) || !m.joins(t)
	case !t.has(base):
		return false
	}
	return byMine && t.touched(real) || byReal && t.touched(mine)
}

// joins reports whether both sides have only given a thing more names.
func (m *merger) joins(t *thing) bool {
	for _, side := range []int{mine, real} {
		now := map[*thing]bool{}
		for _, x := range m.links.of(side, t) {
			now[x] = true
		}
		for _, x := range m.links.old[side][t.on[side].old] {
			if x.has(side) && !now[x] {
				return false
			}
		}
	}
	return true
}

func (m *merger) raiseLinks(t *thing) error {
	did := func(side int) string {
		if m.links.relinked(side, t) {
			return "changed which names are this file"
		}
		return "changed " + aspects(t.on[side].what)
	}
	var more []string
	for _, side := range []int{mine, real} {
		for _, x := range m.links.of(side, t) {
			more = append(more, x.on[side].path)
		}
	}
	return m.raise(t, Links, says(mine, did(mine))+", "+says(real, did(real)), more...)
}

// mergedTime is when something that was merged of two files was changed: after both,
// so that nothing that goes by time and size takes it for either, and the same
// whenever it is merged again.
func mergedTime(a, b *diff.Node) time.Time {
	later := a.MTime
	if b.MTime.After(later) {
		later = b.MTime
	}
	return later.Add(time.Nanosecond)
}

// carry has the content of a regular file copied where no promotion would find it:
// from the real tree, to another place in it.
func (m *merger) carry(t *thing) error {
	n := t.end.node
	if n == nil || t.end.from != fromReal || t.end.path == t.on[real].path || n.Mode.Type() != fs.FileMode(0) {
		return nil
	}
	return m.copyReal(t)
}
