package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/kernel"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate"
)

// The model. Every edit writes a line that no other edit ever writes ("u7" by the
// user, "s8" by a sandbox), so that a tree says whose edits it holds. What must
// hold, whatever is done in whatever order, and wherever it crashes:
//
//   - nothing but promote, apply and undo changes the real tree;
//   - a line of the user's that is in the real tree before one of these is there
//     after it, unless the sandbox had it in its base and took it out, or the
//     person answered a conflict against it;
//   - a file that the user has deleted since a sandbox wrote to it does not come
//     back but by such an answer;
//   - an undo gives back what was there before the promotion, and is refused where
//     something else is there than the promotion had left;
//   - a refresh loses no edit of the sandbox's, and brings the user's.
type model struct {
	*rapid.T
	b     *bench
	next  int
	boxes map[string]*modelBox
	done  []modelPromotion
	// deleted says when the user deleted a file, by number of step.
	deleted map[string]int
	step    int
	frozen  bool
	tally   map[string]int
}

// A modelBox is what is known of a sandbox.
type modelBox struct {
	// saw are the lines that it has had before its eyes.
	saw map[string]bool
	// wrote says when it first wrote to a file since its base was taken; on a
	// live base, when snapfs first saw that: what was deleted before is what the
	// sandbox began with, if it wrote once more.
	wrote   map[string]int
	written map[string]bool
	// landed are lines of its own that have been in the real tree.
	landed map[string]bool
	marks  []string
}

// looked: snapfs has looked at all that the sandbox has written.
func (b *modelBox) looked(step int) {
	for f := range b.written {
		if _, ok := b.wrote[f]; !ok {
			b.wrote[f] = step
		}
	}
}

type modelPromotion struct{ before, after modelTree }

// A modelTree is the content of every file.
type modelTree map[string]string

const modelLines = 9

func modelFiles() []string { return []string{"a", "b", "dir/c", "bin"} }

func readModelTree(root string) modelTree {
	t := modelTree{}
	for _, f := range modelFiles() {
		if data, err := os.ReadFile(filepath.Join(root, f)); err == nil {
			t[f] = string(data)
		}
	}
	return t
}

func (m *model) real() modelTree { return readModelTree(m.b.workspace) }

// lines are those of a content that edits have written.
func (t modelTree) edits(file, by string) (found []string) {
	for l := range strings.SplitSeq(strings.ReplaceAll(t[file], "\x00", "\n"), "\n") {
		if strings.HasPrefix(l, by) {
			found = append(found, l)
		}
	}
	return found
}

func (m *model) token(by string) string {
	m.next++
	return by + strconv.Itoa(m.next)
}

// inBox calls f with a path at which the sandbox's workspace can be read and
// written, with no process in it.
func (m *model) inBox(name string, f func(root string)) {
	ctx := context.Background()
	info, err := m.b.Show(ctx, name)
	m.must(err)
	for i := len(info.Trees) - 1; i >= 0; i-- {
		tree := info.Trees[i]
		rel, err := filepath.Rel(tree.Path, m.b.workspace)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		backend, err := openDriver(m.b, tree)
		m.must(err)
		fork, err := backend.LookupFork(ctx, tree.Fork)
		m.must(err)
		mount := isolate.Mount{Target: "/", Source: fork.View.Path}
		if o := fork.View.Overlay; o != nil {
			mount = isolate.Mount{Target: "/", Overlay: &isolate.Overlay{Lower: o.Lower, Upper: o.Upper, Work: o.Work, UserXattr: o.UserXattr, Nested: o.Nested}}
		}
		dirs, err := isolate.OpenForks(ctx, []isolate.Mount{mount})
		m.must(err)
		f(filepath.Join(kernel.FDPath(dirs[0]), rel))
		dirs[0].Close()
		if s, ok := backend.(snapshot.Settler); ok {
			m.must(s.Settle(ctx, tree.Fork))
		}
		return
	}
	m.Fatalf("no tree of %s holds the workspace", name)
}

func (m *model) must(err error) {
	if err != nil {
		m.Helper()
		m.Fatalf("%v", err)
	}
}

// excused: a step failed on purpose, or a disk elsewhere on the machine has just
// gone.
func (m *model) excused(err error) bool {
	return errors.Is(err, errRehearsal) || errors.Is(err, snapshot.ErrNotFound) && !strings.Contains(err.Error(), m.b.workspace)
}

// edit does one random thing to a file beneath a root.
func (m *model) edit(root, by string) (file string, deleted bool) {
	file = rapid.SampledFrom(modelFiles()).Draw(m.T, "file")
	path := filepath.Join(root, file)
	data, err := os.ReadFile(path)
	how := rapid.IntRange(0, 9).Draw(m.T, "how")
	switch {
	case err != nil || how == 0 && file != "bin": // made anew
		var b strings.Builder
		for i := range modelLines {
			fmt.Fprintf(&b, "%s\n", map[bool]string{true: m.token(by), false: "line " + strconv.Itoa(i)}[i == 4 || err == nil])
		}
		m.must(os.MkdirAll(filepath.Dir(path), 0o755))
		m.must(m.write(path, b.String(), how%2 == 0))
	case how == 1:
		m.must(os.Remove(path))
		return file, true
	case file == "bin":
		m.must(m.write(path, "\x00"+m.token(by)+"\x00", how%2 == 0))
	default:
		lines := strings.SplitAfter(string(data), "\n")
		i := rapid.IntRange(0, modelLines-1).Draw(m.T, "line")
		if i < len(lines) {
			lines[i] = m.token(by) + "\n"
		}
		m.must(m.write(path, strings.Join(lines, ""), how%2 == 0))
	}
	return file, false
}

// write writes in place, or as editors do: by a rename.
func (m *model) write(path, content string, renamed bool) error {
	if !renamed {
		return os.WriteFile(path, []byte(content), 0o644)
	}
	tmp := filepath.Join(filepath.Dir(path), ".tmp")
	if err := os.WriteFile(tmp, []byte(content), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

func (m *model) look(name string) (view modelTree) {
	m.inBox(name, func(root string) { view = readModelTree(root) })
	for f := range view {
		for _, l := range view.edits(f, "u") {
			m.boxes[name].saw[l] = true
		}
	}
	return view
}

func (m *model) userEdits() {
	file, deleted := m.edit(m.b.workspace, "u")
	delete(m.deleted, file)
	if deleted {
		m.deleted[file] = m.step
	}
}

func (m *model) boxEdits(name string) {
	box, before := m.boxes[name], m.real()
	m.look(name)
	var file string
	m.inBox(name, func(root string) { file, _ = m.edit(root, "s") })
	box.written[file] = true
	if _, ok := box.wrote[file]; !ok && m.frozen {
		box.wrote[file] = m.step
	}
	if rapid.Bool().Draw(m.T, "looked at") { // as when a keeper ends
		box.looked(m.step)
		c, err := m.b.Diff(context.Background(), name, "", "")
		m.must(err)
		c.Close()
	}
	m.untouched(before, "an edit in a sandbox")
}

func (m *model) untouched(before modelTree, by string) {
	if now := m.real(); !maps.Equal(now, before) {
		m.Fatalf("%s changed the real tree from %q to %q", by, before, now)
	}
}

// try does an operation, perhaps with a failure at some step.
func (m *model) try(op func(ctx context.Context, e *engine.Engine) error) error {
	at := rapid.IntRange(-60, 60).Draw(m.T, "fails at step")
	if at <= 0 {
		return op(context.Background(), m.b.Engine)
	}
	var passed atomic.Int64
	ctx := fault.With(context.Background(), func(step string) error {
		if passed.Add(1) >= int64(at) && passed.Load() < int64(at)+40 { // the undoing may fail, too
			return fmt.Errorf("rehearsed at %q: %w", step, errRehearsal)
		}
		return nil
	})
	e, err := engine.Open(ctx, engine.Config{State: m.b.state, Drivers: drivers()})
	if err == nil {
		err = op(ctx, e)
	}
	m.b.Engine, _ = m.b.reopen() // the next command mends
	return err
}

var errRehearsal = errors.New("rehearsed")

// kill does an operation in a child that is killed at some step.
func (m *model) kill(op string) error {
	o := m.b.child(op, rapid.IntRange(1, 50).Draw(m.T, "killed at step"), "kill")
	m.b.Engine, _ = m.b.reopen()
	if o.killed {
		return errRehearsal
	}
	return o.err
}

// answers draws how conflicts are answered, and says whether against the user.
func (m *model) answers() (mine, theirs []string) {
	switch rapid.IntRange(0, 5).Draw(m.T, "answers") {
	case 0:
		return []string{"*"}, nil
	case 1:
		return nil, []string{"*"}
	}
	return nil, nil
}

func (m *model) promotes(name string) {
	ctx, box := context.Background(), m.boxes[name]
	view, before := m.look(name), m.real()
	list, err := m.b.Promotions()
	m.must(err)
	plan, err := m.b.PlanOf(ctx, name, engine.PlanOptions{})
	m.must(err)
	m.untouched(before, "a plan")
	box.looked(m.step)
	answered := map[string]bool{}
	for _, c := range plan.Conflicts {
		answered[strings.TrimPrefix(c.Path, m.b.workspace+"/")] = true
	}
	o := engine.PromoteOptions{Plan: plan.Fingerprint}
	if len(plan.Conflicts) > 0 {
		o.Plan = ""
		o.Mine, o.Theirs = m.answers()
	}
	if len(o.Theirs) > 0 { // its own version is given up
		for f := range answered {
			for _, l := range view.edits(f, "s") {
				box.landed[l] = true
			}
		}
	}
	if len(o.Mine) == 0 {
		answered = map[string]bool{}
	}
	if rapid.IntRange(0, 7).Draw(m.T, "killed") == 0 && o.Plan != "" {
		err = m.kill("model promote " + name)
	} else {
		err = m.try(func(ctx context.Context, e *engine.Engine) error {
			_, err := e.Promote(ctx, name, o)
			return err
		})
	}
	after := m.real()
	if err != nil && !errors.Is(err, snapshot.ErrConflict) && !errors.Is(err, snapshot.ErrDrifted) && !m.excused(err) {
		m.Fatalf("promote: %v", err)
	}
	m.carried(name, "promote", view, before, after, answered)
	if err != nil && !errors.Is(err, errRehearsal) {
		m.untouched(before, "a promotion that was refused")
	}
	left, lerr := m.b.Promotions()
	m.must(lerr)
	if len(left) == len(list) && len(left) < promote.History {
		m.untouched(before, "a promotion that nobody can undo")
		return
	}
	m.tally["promoted"]++
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
			kept := slices.Contains(after.edits(f, "u"), l)
			tookOut := box.saw[l] && !slices.Contains(view.edits(f, "u"), l)
			if !kept && !tookOut && !answered[f] {
				m.Fatalf("%s of %s lost the user's %s in %s:\nbefore %q\nafter %q\nsandbox %q", how, name, l, f, before[f], after[f], view[f])
			}
		}
		gone, deleted := m.deleted[f]
		wrote, touched := box.wrote[f]
		if !was && is && deleted && touched && gone > wrote && !answered[f] {
			m.Fatalf("%s of %s brought back %s, which the user deleted since the sandbox wrote to it: %q", how, name, f, after[f])
		}
		if was && !is && mine && !answered[f] {
			m.Fatalf("%s of %s deleted %s, which the sandbox has", how, name, f)
		}
		if is && before[f] != after[f] {
			delete(m.deleted, f)
		}
	}
}

func (m *model) applies(name string) {
	view, before := m.look(name), m.real()
	err := m.try(func(ctx context.Context, e *engine.Engine) error {
		_, err := e.Apply(ctx, name, engine.ApplyOptions{})
		return err
	})
	after := m.real()
	m.carried(name, "apply", view, before, after, nil)
	if err != nil && !errors.Is(err, errRehearsal) {
		m.untouched(before, "an apply that was refused")
	}
	if !maps.Equal(before, after) {
		m.tally["applied"]++
		for f := range after {
			for _, l := range after.edits(f, "s") {
				m.boxes[name].landed[l] = true
			}
		}
	}
}

func (m *model) undoes() {
	list, err := m.b.Promotions()
	m.must(err)
	before := m.real()
	err = m.try(func(ctx context.Context, e *engine.Engine) error { _, err := e.Undo(ctx, ""); return err })
	after := m.real()
	left, lerr := m.b.Promotions()
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
	m.tally["undone"]++
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

func (m *model) refreshes(name string) {
	box, view, before := m.boxes[name], m.look(name), m.real()
	mine, theirs := m.answers()
	var r engine.Refreshed
	err := m.try(func(ctx context.Context, e *engine.Engine) (err error) {
		r, err = e.Refresh(ctx, name, engine.RefreshOptions{Mine: mine, Theirs: theirs})
		return err
	})
	m.untouched(before, "a refresh")
	now := m.look(name)
	box.looked(m.step)
	for f := range before {
		for _, l := range before.edits(f, "u") {
			box.saw[l] = box.saw[l] || len(mine) > 0 // its own version is what counts
		}
	}
	if errors.Is(err, snapshot.ErrConflict) || errors.Is(err, snapshot.ErrNotFound) || r.Resolved > 0 || len(theirs)+len(mine) > 0 {
		return // what an earlier one has left, and answers to it
	}
	if err != nil && !m.excused(err) {
		m.Fatalf("refresh: %v", err)
	}
	for _, f := range modelFiles() {
		for _, l := range view.edits(f, "s") {
			if !box.landed[l] && !slices.Contains(now.edits(f, "s"), l) {
				m.Fatalf("refresh of %s lost its own %s in %s:\nbefore %q\nafter %q", name, l, f, view[f], now[f])
			}
		}
		if err != nil || slices.ContainsFunc(r.Conflicts, func(c engine.CarryConflict) bool { return c.Path == filepath.Join(m.b.workspace, f) }) {
			continue
		}
		for _, l := range before.edits(f, "u") {
			if !slices.Contains(now.edits(f, "u"), l) && !(box.saw[l] && !slices.Contains(view.edits(f, "u"), l)) {
				m.Fatalf("refresh of %s did not bring the user's %s in %s:\nreal %q\nafter %q", name, l, f, before[f], now[f])
			}
		}
	}
	if err == nil {
		m.tally["refreshed"]++
		m.tally["conflicts"] += len(r.Conflicts)
		box.wrote, box.written = map[string]int{}, map[string]bool{}
		for _, f := range modelFiles() {
			if now[f] != before[f] || present(now, f) != present(before, f) {
				box.wrote[f], box.written[f] = m.step, true
			}
		}
	}
}

func (m *model) states(name string) {
	box, before := m.boxes[name], m.real()
	back := rapid.IntRange(-1, len(box.marks)).Draw(m.T, "state")
	var err error
	switch {
	case back == len(box.marks):
		var mark string
		err = m.try(func(ctx context.Context, e *engine.Engine) error {
			s, err := e.Snapshot(ctx, name, "")
			mark = s.Name
			return err
		})
		if err == nil {
			box.marks = append(box.marks, mark)
		}
	case back >= 0:
		err = m.try(func(ctx context.Context, e *engine.Engine) error { return e.Rollback(ctx, name, box.marks[back]) })
		for _, f := range modelFiles() { // it may have been written at any time
			box.written[f] = true
		}
	default:
		err = m.try(func(ctx context.Context, e *engine.Engine) error { return e.Rollback(ctx, name, "") })
	}
	box.looked(m.step)
	if err != nil && !m.excused(err) {
		m.Fatalf("%v", err)
	}
	m.untouched(before, "a state")
}

// modelOperations are what children do.
func modelOperations() map[string]operation {
	all := map[string]operation{}
	for _, name := range []string{"x", "y"} {
		all["model promote "+name] = operation{do: func(ctx context.Context, b *bench) error {
			_, err := b.Promote(ctx, name, engine.PromoteOptions{})
			return err
		}}
	}
	return all
}

func (m *model) run() {
	ctx := context.Background()
	for _, f := range modelFiles() {
		path := filepath.Join(m.b.workspace, f)
		m.must(os.MkdirAll(filepath.Dir(path), 0o755))
		var b strings.Builder
		for i := range modelLines {
			fmt.Fprintf(&b, "line %d\n", i)
		}
		m.must(os.WriteFile(path, []byte(b.String()), 0o644))
	}
	time.Sleep(10 * time.Millisecond)
	for _, name := range []string{"x", "y"} {
		req := m.b.request()
		req.Name = name
		rec, err := m.b.New(ctx, req)
		m.must(err)
		for _, t := range rec.Trees { // the deepest comes last
			if rel, err := filepath.Rel(t.Path, m.b.workspace); err == nil && filepath.IsLocal(rel) {
				m.frozen = t.Frozen
			}
		}
		m.boxes[name] = &modelBox{saw: map[string]bool{}, wrote: map[string]int{}, written: map[string]bool{}, landed: map[string]bool{}}
	}
	for m.step = 1; m.step <= 25; m.step++ {
		name := rapid.SampledFrom([]string{"x", "y"}).Draw(m.T, "sandbox")
		if rapid.Bool().Draw(m.T, "the clock moves on") {
			time.Sleep(8 * time.Millisecond)
		}
		m.tally["steps"]++
		switch op := rapid.SampledFrom([]string{"user", "user", "box", "box", "box", "promote", "promote", "refresh", "undo", "state", "apply"}).Draw(m.T, "step"); op {
		case "user":
			m.userEdits()
		case "box":
			m.boxEdits(name)
		case "promote":
			m.promotes(name)
		case "refresh":
			m.refreshes(name)
		case "undo":
			m.undoes()
		case "state":
			m.states(name)
		case "apply":
			m.applies(name)
		}
	}
}

// clear makes room for the next script.
func (m *model) clear() {
	ctx := context.Background()
	m.b.Engine, _ = m.b.reopen()
	for name := range m.boxes {
		_ = m.b.Remove(ctx, name)
	}
	for {
		all, err := m.b.Promotions()
		if err != nil || len(all) == 0 {
			break
		}
		if _, err := m.b.Undo(ctx, ""); err != nil {
			_ = os.RemoveAll(filepath.Join(m.b.state, "promotions"))
		}
	}
	list, _ := os.ReadDir(m.b.workspace)
	for _, e := range list {
		_ = os.RemoveAll(filepath.Join(m.b.workspace, e.Name()))
	}
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(m.b.workspace), ".snapfs-apply-*"))
	for _, path := range left {
		_ = os.RemoveAll(path)
	}
}

// TestNoEditOfTheUsersIsEverLost plays random scripts against the model. A failure
// shrinks to a short script, whose seed is printed; -rapid.checks runs more.
func TestNoEditOfTheUsersIsEverLost(t *testing.T) {
	play := func(t *testing.T, b *bench) {
		tally := map[string]int{}
		began, most := time.Now(), 8*time.Second
		if long() {
			most = 5 * time.Minute
		}
		said := []string{"promoted", "undone", "refreshed", "conflicts"}
		rapid.Check(t, func(rt *rapid.T) {
			silent := slices.ContainsFunc(said, func(what string) bool { return tally[what] == 0 })
			if took := time.Since(began); !t.Failed() && (took > most && !silent || took > 6*most) {
				return
			}
			m := &model{T: rt, b: b, boxes: map[string]*modelBox{}, deleted: map[string]int{}, tally: tally}
			defer m.clear()
			m.run()
		})
		t.Logf("%v", tally)
		for _, what := range said {
			if tally[what] == 0 {
				t.Errorf("nothing was %s: the scripts say little", what)
			}
		}
	}
	t.Run("root", func(t *testing.T) {
		treetest.NeedRoot(t)
		play(t, newBench(t))
	})
	t.Run("user", func(t *testing.T) {
		if treetest.AsUser(t) {
			play(t, newBench(t))
		}
	})
	onBtrfs(t, play)
}
