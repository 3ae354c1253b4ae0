package engine_test

import (
	"context"
	"errors"
	"maps"
	"path/filepath"

	"github.com/snapfs/snapfs/errs"
)

// makes makes a sandbox of the real tree as it is now.
func (m *model) makes(name string) {
	before, req := m.real(), m.b.request()
	req.Name, req.Backend = name, m.p.asks
	rec, err := m.b.New(context.Background(), req)
	m.must(err)
	for _, t := range rec.Trees { // the deepest comes last
		if rel, err := filepath.Rel(t.Path, m.b.workspace); err == nil && filepath.IsLocal(rel) {
			m.frozen = t.Frozen
		}
	}
	m.boxes[name] = &modelBox{
		saw: map[string]bool{}, wrote: map[string]int{}, written: map[string]bool{}, own: map[string]bool{}, landed: map[string]bool{},
		without: map[string]bool{},
	}
	for _, f := range modelFiles() {
		m.boxes[name].without[f] = !present(before, f)
	}
	m.say("%s is made", name)
	m.untouched(before, "a new sandbox")
	if view := m.look(name); !maps.Equal(view, before) {
		m.Fatalf("a new sandbox is not what the real tree is:\nreal    %v\nsandbox %v", before, view)
	}
}

func (m *model) marks(name string) {
	box, before, view := m.boxes[name], m.real(), m.look(name)
	mark := m.token("m")
	_, err := m.do(opSnapshot, name, mark)
	if err == nil {
		box.marks = append(box.marks, modelMark{mark, view, maps.Clone(box.written), maps.Clone(box.without)})
		m.say("state %d", len(box.marks))
	} else if !m.excused(err) {
		m.Fatalf("a state of %s: %v", name, err)
	}
	box.looked(m.at)
	m.untouched(before, "a state")
	m.holds(name, "a state", view)
}

func (m *model) goesBack(name string) {
	box, before, view := m.boxes[name], m.real(), m.look(name)
	back := modelMark{written: map[string]bool{}}
	if i := min(m.step.state, len(box.marks)); i > 0 {
		back = box.marks[i-1]
	}
	_, err := m.do(opRollback, name, back.name)
	if err != nil && !m.excused(err) {
		m.Fatalf("a rollback of %s: %v", name, err)
	}
	m.untouched(before, "a rollback")
	if err == nil {
		m.p.tally["rolled back"]++
		box.wrote, box.written = map[string]int{}, maps.Clone(back.written)
	}
	switch {
	case back.held != nil && err == nil:
		m.holds(name, "a rollback", back.held)
	case back.held != nil:
		m.holds(name, "a rollback that failed", back.held, view)
	}
	for _, f := range modelFiles() { // after a failure, its base may be this or that
		box.without[f] = box.without[f] || back.without[f] || err != nil
	}
	box.looked(m.at)
}

// holds: the sandbox is one of these, where nothing shines through from below.
func (m *model) holds(name, after string, want ...modelTree) {
	now := m.look(name)
	for _, w := range want {
		if !m.frozen || maps.Equal(w, now) {
			return
		}
	}
	m.Fatalf("%s has made of %s\n%v\nand it should be one of\n%v", after, name, now, want)
}

func (m *model) removes(name string) {
	before := m.real()
	_, err := m.do(opRemove, name)
	if err != nil && !m.excused(err) {
		m.Fatalf("removing %s: %v", name, err)
	}
	m.untouched(before, "a removal")
	if _, gone := m.b.Show(context.Background(), name); errors.Is(gone, errs.ErrNotFound) {
		delete(m.boxes, name)
	} else if err == nil || gone != nil {
		m.Fatalf("%s is removed, and still there: %v", name, gone)
	}
}
