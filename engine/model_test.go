package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
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
	p     *modelPlay
	b     *bench
	next  int
	boxes map[string]*modelBox
	done  []modelPromotion
	// deleted says when the user deleted a file, by number of step.
	deleted map[string]int
	at      int // the number of the step
	step    modelStep
	frozen  bool
	said    []string // what came of each step
}

// A brokenPromise ends a script.
type brokenPromise struct{ kind, what string }

// cutShort ends one that says nothing.
type cutShort struct{}

// A modelBox is what is known of a sandbox.
type modelBox struct {
	// saw are the lines that it has had before its eyes.
	saw map[string]bool
	// wrote says when it first wrote to a file since its base was taken; on a
	// live base, when snapfs first saw that: what was deleted before is what the
	// sandbox began with, if it wrote once more.
	wrote   map[string]int
	written map[string]bool
	// own are the lines that were written in it, and landed those of them that have
	// been in the real tree.
	own, landed map[string]bool
	// without are files that its base may be without, because it was made so, or it
	// was carried, or given up, that the sandbox has none: what it makes there since is
	// new, and no older file of the user's comes back in it.
	without map[string]bool
	marks   []modelMark
}

type modelMark struct {
	name             string
	held             modelTree
	written, without map[string]bool
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

// has reports whether an edit's line is in any file: what the sandbox deletes here
// and writes there may be a rename, which takes the user's edits along.
func (t modelTree) has(line string) bool {
	for f := range t {
		if slices.Contains(t.edits(f, line), line) {
			return true
		}
	}
	return false
}

func (m *model) token(by string) string {
	m.next++
	return by + strconv.Itoa(m.next)
}

// inBox calls f with a path at which the sandbox's workspace can be read and
// written, with no process in it.
func (m *model) inBox(name string, f func(root string)) {
	rec, err := m.p.records.Get(name)
	m.must(err)
	for i := len(rec.Trees) - 1; i >= 0; i-- {
		tree := rec.Trees[i]
		if rel, err := filepath.Rel(tree.Path, m.b.workspace); err == nil && filepath.IsLocal(rel) {
			m.inTree(tree, rel, f)
			return
		}
	}
	m.Fatalf("no tree of %s holds the workspace", name)
}

func (m *model) inTree(tree catalog.Tree, rel string, f func(root string)) {
	ctx := context.Background()
	backend, err := openDriver(m.b, tree)
	m.must(err)
	fork, err := backend.LookupFork(ctx, tree.Fork)
	m.must(err)
	o := fork.View.Overlay
	if o == nil {
		f(filepath.Join(fork.View.Path, rel))
	} else {
		mount := isolate.Mount{Target: "/", Overlay: &isolate.Overlay{Lower: o.Lower, Upper: o.Upper, Work: o.Work, UserXattr: o.UserXattr, Nested: o.Nested}}
		dirs, err := isolate.OpenForks(ctx, []isolate.Mount{mount})
		m.must(err)
		f(filepath.Join(vfs.FDPath(dirs[0]), rel))
		dirs[0].Close()
	}
	if s, ok := backend.(snapshot.Syncer); ok {
		m.must(s.Sync(ctx, tree.Fork))
	}
}

// Fatalf ends the script, and says why. Two that break at the same place in the
// same way have the same format.
func (m *model) Fatalf(format string, args ...any) {
	panic(brokenPromise{format, fmt.Sprintf(format, args...)})
}

func (m *model) must(err error) {
	switch {
	case err == nil:
	case m.elsewhere(err):
		panic(cutShort{})
	default:
		m.Fatalf("%v", err)
	}
}

// excused: a step failed on purpose, or for what is elsewhere.
func (m *model) excused(err error) bool { return errors.Is(err, errRehearsal) || m.elsewhere(err) }

// elsewhere: a disk of somebody else's on this machine has just gone.
func (m *model) elsewhere(err error) bool {
	gone := errors.Is(err, errs.ErrNotFound) || errors.Is(err, fs.ErrNotExist)
	return gone && !strings.Contains(err.Error(), m.b.workspace) && !strings.Contains(err.Error(), m.b.state)
}

// edit does to a file beneath a root what the step says.
func (m *model) edit(root, by string) (file string, deleted bool) {
	file, how := m.step.file, m.step.how
	path := filepath.Join(root, file)
	manner := map[bool]string{true: "by a rename", false: "in place"}[how%2 == 0]
	data, err := os.ReadFile(path)
	switch {
	case err != nil || how == 0 && file != "bin": // made anew
		var b strings.Builder
		for i := range modelLines {
			fmt.Fprintf(&b, "%s\n", map[bool]string{true: m.token(by), false: "line " + strconv.Itoa(i)}[i == 4 || err == nil])
		}
		m.must(os.MkdirAll(filepath.Dir(path), 0o755))
		m.must(m.write(path, b.String(), how%2 == 0))
		m.say("writes it anew, %s, up to %s%d", manner, by, m.next)
	case how == 1:
		m.must(os.Remove(path))
		m.say("deletes it")
		return file, true
	case file == "bin":
		m.must(m.write(path, "\x00"+m.token(by)+"\x00", how%2 == 0))
		m.say("makes it %s%d, %s", by, m.next, manner)
	default:
		lines := strings.SplitAfter(string(data), "\n")
		i := min(m.step.line, len(lines)-1)
		lines[i] = m.token(by) + "\n"
		m.must(m.write(path, strings.Join(lines, ""), how%2 == 0))
		m.say("makes line %d %s%d, %s", i, by, m.next, manner)
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
	m.inBox(name, func(root string) { view = m.sees(name, root) })
	return view
}

// sees notes what a sandbox has before its eyes.
func (m *model) sees(name, root string) modelTree {
	view := readModelTree(root)
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
		m.deleted[file] = m.at
	}
}

func (m *model) boxEdits(name string) {
	box, before := m.boxes[name], m.real()
	var file string
	first := m.next + 1
	m.inBox(name, func(root string) {
		m.sees(name, root)
		file, _ = m.edit(root, "s")
	})
	for i := first; i <= m.next; i++ {
		box.own["s"+strconv.Itoa(i)] = true
	}
	if !m.frozen && !box.written[file] && !present(before, file) { // its base is what the user has left
		box.without[file] = true
	}
	box.written[file] = true
	if _, ok := box.wrote[file]; !ok && m.frozen {
		box.wrote[file] = m.at
	}
	if m.step.looked { // as when a keeper ends
		box.looked(m.at)
		c, err := m.b.Compare.Diff(context.Background(), name, "", "")
		m.must(err)
		c.Close()
		m.say("and is looked at")
	}
	m.untouched(before, "an edit in a sandbox")
}

func (m *model) untouched(before modelTree, by string) {
	if now := m.real(); !maps.Equal(now, before) {
		m.Fatalf("%s changed the real tree from\n%v\nto\n%v", by, before, now)
	}
}
