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

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/kernel"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate"
	"pgregory.net/rapid"
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
	// without are files that its base may be without, because it was carried that
	// the sandbox has none: what it makes there since is new, and no older file of
	// the user's comes back in it.
	without map[string]bool
	marks   []string
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
		m.boxes[name] = &modelBox{saw: map[string]bool{}, wrote: map[string]int{}, written: map[string]bool{}, landed: map[string]bool{}, without: map[string]bool{}}
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
