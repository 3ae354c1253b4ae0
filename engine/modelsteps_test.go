package engine_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
)

func (m *model) promotes(name string) {
	ctx, box := context.Background(), m.boxes[name]
	view, before := m.look(name), m.real()
	list, err := m.b.Reconcile.Promotions()
	m.must(err)
	plan, err := m.b.Reconcile.PlanOf(ctx, name, reconcile.PlanOptions{})
	m.must(err)
	m.untouched(before, "a plan")
	box.looked(m.at)
	answered := m.places(plan.Conflicts)
	how := plan.Fingerprint
	if len(plan.Conflicts) > 0 {
		how = m.step.answers
		m.say("conflicts in %s, answer %q", strings.Join(slices.Sorted(maps.Keys(answered)), ", "), how)
	}
	if how == "theirs" { // its own version is given up
		for f := range answered {
			for _, l := range view.edits(f, "s") {
				box.landed[l] = true
			}
			box.without[f] = box.without[f] || !present(view, f)
		}
	}
	if how != "mine" {
		answered = map[string]bool{}
	}
	_, err = m.do(opPromote, name, how)
	after := m.real()
	if err != nil && !errors.Is(err, errs.ErrConflict) && !errors.Is(err, errs.ErrDrifted) && !m.excused(err) {
		m.Fatalf("promote: %v", err)
	}
	m.carried(name, "promote", view, before, after, answered)
	if err != nil && !errors.Is(err, errRehearsal) {
		m.untouched(before, "a promotion that was refused")
	}
	left, lerr := m.b.Reconcile.Promotions()
	m.must(lerr)
	if len(left) == len(list) && len(left) < promote.History {
		m.untouched(before, "a promotion that nobody can undo")
		return
	}
	m.p.tally["promoted"]++
	m.done = append(m.done, modelPromotion{before, after})
	for f := range after {
		for _, l := range after.edits(f, "s") {
			box.landed[l] = true
		}
	}
}

// carried checks what was brought to the real tree.
func (m *model) carried(name, how string, view, before, after modelTree, answered map[string]bool) {
	box := m.boxes[name]
	for _, f := range modelFiles() {
		_, was := before[f]
		_, is := after[f]
		_, mine := view[f]
		for _, l := range before.edits(f, "u") {
			kept := after.has(l) // perhaps in what the sandbox has renamed it to
			tookOut := box.saw[l] && !slices.Contains(view.edits(f, "u"), l)
			if !kept && !tookOut && !answered[f] {
				m.Fatalf("%s of %s lost the user's %s in %s:\nbefore  %v\nafter   %v\nsandbox %v", how, name, l, f, before, after, view)
			}
		}
		gone, deleted := m.deleted[f]
		wrote, touched := box.wrote[f]
		if !was && is && deleted && touched && gone > wrote && !box.without[f] && !answered[f] {
			m.Fatalf("%s of %s brought back %s, which the user deleted since the sandbox wrote to it: %q", how, name, f, after[f])
		}
		if was && !is && mine && !answered[f] {
			m.Fatalf("%s of %s deleted %s, which the sandbox has", how, name, f)
		}
		if is && before[f] != after[f] {
			delete(m.deleted, f)
		}
		if !mine && !is {
			box.without[f] = true
		}
	}
}

func (m *model) applies(name string) {
	view, before := m.look(name), m.real()
	list, err := m.b.Reconcile.Promotions()
	m.must(err)
	_, err = m.do(opApply, name)
	after := m.real()
	m.carried(name, "apply", view, before, after, nil)
	if err != nil && !errors.Is(err, errRehearsal) {
		m.untouched(before, "an apply that was refused")
	}
	left, lerr := m.b.Reconcile.Promotions()
	m.must(lerr)
	if len(left) != len(list) || len(left) == promote.History && !maps.Equal(before, after) {
		m.done = append(m.done, modelPromotion{before, after})
	} else {
		m.untouched(before, "an apply that nobody can undo")
	}
	if !maps.Equal(before, after) {
		m.p.tally["applied"]++
		for f := range after {
			for _, l := range after.edits(f, "s") {
				m.boxes[name].landed[l] = true
			}
		}
	}
}

func (m *model) undoes() {
	list, err := m.b.Reconcile.Promotions()
	m.must(err)
	before := m.real()
	_, err = m.do(opUndo)
	after := m.real()
	left, lerr := m.b.Reconcile.Promotions()
	m.must(lerr)
	if len(left) == len(list) {
		m.untouched(before, "an undo that did not happen")
		return
	}
	if len(m.done) == 0 {
		m.Fatalf("something was undone that nobody has promoted: %v", err)
	}
	last := m.done[len(m.done)-1]
	m.done = m.done[:len(m.done)-1]
	m.p.tally["undone"]++
	for _, f := range modelFiles() {
		changed := last.before[f] != last.after[f] || present(last.before, f) != present(last.after, f)
		switch {
		case !changed && (before[f] != after[f] || present(before, f) != present(after, f)):
			m.Fatalf("undo changed %s, which the promotion had not: %q to %q", f, before[f], after[f])
		case changed && (before[f] != last.after[f] || present(before, f) != present(last.after, f)):
			m.Fatalf("undo took back %s, which was %q and not %q as promoted", f, before[f], last.after[f])
		case changed && (after[f] != last.before[f] || present(after, f) != present(last.before, f)):
			m.Fatalf("undo made %s %q, and it was %q", f, after[f], last.before[f])
		}
	}
}

func present(t modelTree, f string) bool { _, ok := t[f]; return ok }

// places are those that conflicts are about, wherever a side has them.
func (m *model) places(conflicts []reconcile.Conflict) map[string]bool {
	all := map[string]bool{}
	for _, c := range conflicts {
		for _, path := range append([]string{c.Path, c.MinePath, c.RealPath}, c.Also...) {
			if rel, ok := strings.CutPrefix(path, m.b.workspace+"/"); ok {
				all[rel] = true
			}
		}
	}
	return all
}

func (m *model) refreshes(name string) {
	box, view, before, base := m.boxes[name], m.look(name), m.real(), m.generation(name)
	r, err := m.do(opRefresh, name, m.step.answers)
	m.untouched(before, "a refresh")
	conflicts := m.places(r.Conflicts)
	if len(conflicts) > 0 {
		m.say("conflicts in %s", strings.Join(slices.Sorted(maps.Keys(conflicts)), ", "))
	}
	now := m.look(name)
	box.looked(m.at)
	for _, f := range modelFiles() { // the real tree may be its base now, whatever was answered
		box.without[f] = box.without[f] || !present(before, f)
	}
	for f := range before {
		for _, l := range before.edits(f, "u") {
			box.saw[l] = box.saw[l] || m.step.answers == "mine" // its own version is what counts
		}
	}
	if m.generation(name) != base { // another base: only differences from it were written since
		box.wrote, box.written = map[string]int{}, map[string]bool{}
		for _, f := range modelFiles() {
			if now[f] != before[f] || present(now, f) != present(before, f) {
				box.wrote[f], box.written[f] = m.at, true
			}
		}
	}
	if errors.Is(err, errs.ErrConflict) || errors.Is(err, errs.ErrNotFound) || r.Resolved > 0 || m.step.answers != "" {
		return // what an earlier one has left, and answers to it
	}
	if err != nil && !m.excused(err) {
		m.Fatalf("refresh: %v", err)
	}
	for _, f := range modelFiles() {
		for _, l := range view.edits(f, "s") {
			if box.own[l] && !box.landed[l] && !now.has(l) {
				m.Fatalf("refresh of %s lost its own %s in %s:\nbefore %v\nafter  %v", name, l, f, view, now)
			}
		}
		if err != nil || conflicts[f] {
			continue
		}
		for _, l := range before.edits(f, "u") {
			if !now.has(l) && !(box.saw[l] && !slices.Contains(view.edits(f, "u"), l)) {
				m.Fatalf("refresh of %s did not bring the user's %s in %s:\nreal  %v\nafter %v", name, l, f, before, now)
			}
		}
	}
	if err == nil {
		m.p.tally["refreshed"]++
	}
}

// generation counts the bases that a sandbox has had.
func (m *model) generation(name string) int {
	rec, err := m.p.records.Get(name)
	m.must(err)
	return rec.Refreshed
}
