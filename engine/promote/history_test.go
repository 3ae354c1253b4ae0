package promote_test

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// promoted promotes the sandbox's changes so that they can be undone; name is the sandbox's.
func (w *world) promoted(t *testing.T, name string, base promote.Base) promote.Result {
	t.Helper()
	o := options(base)
	o.Sandbox, o.KeepUndo = name, true
	r, err := promote.Apply(t.Context(), w.target(), w.source(), w.changes(t, base), o)
	must(t, err)
	if r.ID == "" {
		t.Fatal("nothing was applied")
	}
	return r
}

// stages counts the stages beside the real tree.
func (w *world) stages(t *testing.T) int {
	t.Helper()
	list, err := filepath.Glob(w.top + "/.snapfs-apply-*")
	must(t, err)
	return len(list)
}

// A stage that a killed process left can be told from one in use, since its name has the process that made it.
func TestAStageIsNamedAfterItsProcess(t *testing.T) {
	w := newWorld(t, treetest.Dir(t), treetest.Script{file("a", 1, 10)}, nil)
	must(t, os.WriteFile(w.sandbox.Name()+"/a", []byte("new"), 0o644))
	r := w.promoted(t, "s", w.frozen())
	self, err := proc.Self()
	must(t, err)
	owner := strconv.FormatInt(int64(self.PID), 36) + "-" + strconv.FormatUint(self.Start, 36) + "-"
	if _, err := os.Lstat(w.top + "/.snapfs-apply-" + r.ID); err != nil || !strings.HasPrefix(r.ID, owner) {
		t.Errorf("the promotion is %s (%v), want a stage of %s", r.ID, err, owner)
	}
}

func TestTheLastTenPromotionsAreUndoneOneAfterAnother(t *testing.T) {
	w := newWorld(t, treetest.Dir(t), treetest.Script{file("a", 1, 10), file("b", 1, 10), file("mode", 1, 10)}, nil)
	base := w.frozen()
	base.Known = map[string]promote.Stamp{}
	var states []string
	var ids []string
	for n := range 12 {
		states = append(states, manifest(t, w))
		must(t, os.WriteFile(w.sandbox.Name()+"/a", fmt.Append(nil, "version ", n), 0o644))
		must(t, os.WriteFile(filepath.Join(w.sandbox.Name(), fmt.Sprint("new", n)), nil, 0o644))
		must(t, os.Chmod(w.sandbox.Name()+"/mode", os.FileMode(0o600+n)))
		if n%3 == 0 {
			must(t, os.Remove(w.sandbox.Name()+"/b"))
		} else {
			must(t, os.WriteFile(w.sandbox.Name()+"/b", fmt.Append(nil, "version ", n), 0o644))
		}
		r := w.promoted(t, fmt.Sprint("s", n), base)
		for path, s := range r.Stamps {
			base.Known[path] = s
		}
		ids = append(ids, r.ID)
	}
	list, err := promote.Promotions(w.state())
	must(t, err)
	if len(list) != promote.History || w.stages(t) != promote.History {
		t.Fatalf("%d are listed and %d stages kept: %+v", len(list), w.stages(t), list)
	}
	for i, p := range list {
		if n := 11 - i; p.ID != ids[n] || p.Group != p.ID || p.Sandbox != fmt.Sprint("s", n) || p.Path != w.real.Name() || p.Applied < 3 || time.Since(p.When) > time.Hour {
			t.Errorf("%d: %+v", i, p)
		}
	}
	now := manifest(t, w)
	_, err = promote.Undo(t.Context(), w.state(), ids[7])
	if !errors.Is(err, errs.ErrDrifted) || !slices.Contains(w.listed(err), "a") {
		t.Errorf("undone beneath later ones: %v", err)
	}
	if l := treetest.Lines(now, manifest(t, w)); len(l) > 0 {
		t.Errorf("refused, and touched %q", l)
	}
	for n := 11; n >= 2; n-- {
		if _, err := promote.Undo(t.Context(), w.state(), ids[n]); err != nil {
			t.Fatalf("%d: %v", n, err)
		}
		if l := treetest.Lines(states[n], manifest(t, w)); len(l) > 0 {
			t.Fatalf("%d: %q", n, l)
		}
	}
	if list, err := promote.Promotions(w.state()); err != nil || len(list) > 0 {
		t.Errorf("still listed: %+v, %v", list, err)
	}
	if _, err := promote.Undo(t.Context(), w.state(), ids[1]); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("the eleventh: %v", err)
	}
	w.clean(t)
}

func TestUndoRefusesPathsChangedSince(t *testing.T) {
	before, after := scene()
	for name, c := range map[string]struct {
		path   string
		change func(path string) error
	}{
		"a write that keeps the time": {"mod", func(path string) error {
			st, err := os.Stat(path)
			return errors.Join(err, os.WriteFile(path, make([]byte, st.Size()), 0), os.Chtimes(path, st.ModTime(), st.ModTime()))
		}},
		"an attribute":               {"becomes-file", func(path string) error { return unix.Setxattr(path, "user.mine", []byte("x"), 0) }},
		"a mode":                     {"mode", func(path string) error { return os.Chmod(path, 0o640) }},
		"an attribute of what stays": {"attr", func(path string) error { return unix.Setxattr(path, "user.snapfs", []byte("x"), 0) }},
		"content of what stays":      {"mode", func(path string) error { return os.WriteFile(path, []byte("ten bytes!"), 0) }},
		"the mode of a directory":    {"dir", func(path string) error { return os.Chmod(path, 0o755) }},
		"a file made where one went": {"gone", func(path string) error { return os.WriteFile(path, nil, 0o644) }},
		"a file in a new directory":  {"new", func(path string) error { return os.WriteFile(path+"/mine", nil, 0o644) }},
		"one beneath it, time kept": {"new", func(path string) error {
			path += "/deep/z"
			st, err := os.Stat(path)
			return errors.Join(err, os.WriteFile(path, make([]byte, st.Size()), 0), os.Chtimes(path, st.ModTime(), st.ModTime()))
		}},
		"a deletion":   {"sym", os.Remove},
		"another link": {"sym", func(path string) error { return errors.Join(os.Remove(path), os.Symlink("mod", path)) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, treetest.Dir(t), before, after)
			r := w.promoted(t, "s", w.frozen())
			must(t, c.change(filepath.Join(w.real.Name(), c.path)))
			now := manifest(t, w)
			_, err := promote.Undo(t.Context(), w.state(), r.ID)
			if !errors.Is(err, errs.ErrDrifted) || !slices.Equal(w.listed(err), []string{c.path}) {
				t.Errorf("got %v, want %s", err, c.path)
			}
			if l := treetest.Lines(now, manifest(t, w)); len(l) > 0 {
				t.Errorf("refused, and touched %q", l)
			}
			if list, err := promote.Promotions(w.state()); err != nil || len(list) != 1 {
				t.Errorf("not listed any more: %+v %v", list, err)
			}
			must(t, promote.Forget(t.Context(), w.state(), r.ID))
			w.clean(t)
		})
	}
}

func TestUndoWithoutOldVersionsTouchesNothing(t *testing.T) {
	before, after := scene()
	w := newWorld(t, treetest.Dir(t), before, after)
	r := w.promoted(t, "s", w.frozen())
	stages, err := filepath.Glob(w.top + "/.snapfs-apply-*")
	must(t, err)
	must(t, os.RemoveAll(stages[0]))
	now := manifest(t, w)
	if _, err := promote.Undo(t.Context(), w.state(), r.ID); !errors.Is(err, errs.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
	if l := treetest.Lines(now, manifest(t, w)); len(l) > 0 {
		t.Errorf("touched %q", l)
	}
}

func TestTemporaryAndGroupedPromotionsDoNotDisplaceOthers(t *testing.T) {
	w := newWorld(t, treetest.Dir(t), nil, nil)
	var passing string
	for n := range 2*promote.History + 3 {
		name := fmt.Sprint("f", n)
		must(t, os.WriteFile(filepath.Join(w.sandbox.Name(), name), nil, 0o644))
		chosen := selected(w.changes(t, w.frozen()), name)
		o := options(w.frozen())
		o.KeepUndo, o.Temporary, o.Group = true, n == 0, fmt.Sprint("request", n/2)
		r, err := promote.Apply(t.Context(), w.target(), w.source(), chosen, o)
		must(t, err)
		if n == 0 {
			passing = r.ID
		}
	}
	list, err := promote.Promotions(w.state())
	must(t, err)
	// Of twelve groups, the last has one promotion.
	if len(list) != 2*promote.History-1 || list[0].Group != "request11" || list[len(list)-1].Group != "request2" {
		t.Errorf("%d are listed: %+v", len(list), list)
	}
	if _, err := promote.Undo(t.Context(), w.state(), passing); err != nil {
		t.Errorf("the passing one: %v", err)
	}
}

// TestJournalsOfTheFirstFormatAreUndone converts a journal to the format before there was a
// history.
func TestJournalsOfTheFirstFormatAreUndone(t *testing.T) {
	before, after := scene()
	w := newWorld(t, treetest.Dir(t), before, after)
	old := manifest(t, w)
	r := w.promoted(t, "s", w.frozen())
	path := filepath.Join(w.state(), r.ID+".undo")
	data, err := os.ReadFile(path)
	must(t, err)
	var first strings.Builder
	for line := range strings.Lines(string(data)) {
		text := strings.TrimSuffix(line[9:], "\n")
		fields := strings.Split(text, " ")
		less := map[string]int{"put": 1, "swap": 1, "drop": 1, "alter": 4}[fields[0]]
		switch fields[0] {
		case "made", "to", "stamp":
			continue
		case "snapfs-promotion":
			fields[1] = "1"
		}
		text = strings.Join(fields[:len(fields)-less], " ")
		fmt.Fprintf(&first, "%08x %s\n", crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli)), text)
	}
	must(t, os.WriteFile(path, []byte(first.String()), 0o600))
	if list, err := promote.Promotions(w.state()); err != nil || len(list) != 1 || list[0].ID != r.ID || time.Since(list[0].When) > time.Hour {
		t.Errorf("listed: %+v %v", list, err)
	}
	_, err = promote.Undo(t.Context(), w.state(), r.ID)
	must(t, err)
	if l := treetest.Lines(old, manifest(t, w)); len(l) > 0 {
		t.Errorf("after undo: %q", l)
	}
	w.clean(t)
}

// A workspace below the root of a git work tree has its stages in that work tree.
func TestGitNeitherListsNorDeletesWhatAnUndoNeeds(t *testing.T) {
	treetest.NeedProgram(t, "git")
	w := newWorld(t, treetest.Dir(t), treetest.Script{file("a", 1, 10)}, nil)
	git := func(args ...string) string {
		t.Helper()
		var out strings.Builder
		args = append([]string{"-c", "safe.directory=*"}, args...)
		err := run.Run(t.Context(), run.Program{Name: "git", Args: args, Dir: w.top, Env: append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null"), Stdout: &out})
		must(t, err)
		return out.String()
	}
	git("init", "-q")
	base := w.frozen()
	base.Known = map[string]promote.Stamp{}
	before := manifest(t, w)
	for n := range 2 {
		must(t, os.WriteFile(w.sandbox.Name()+"/a", fmt.Append(nil, "version ", n), 0o644))
		r := w.promoted(t, "s", base)
		base.Known["a"] = r.Stamps["a"]
		list, err := filepath.Glob(w.top + "/.snapfs-apply-*/.gitignore")
		must(t, err)
		if len(list) != n+1 {
			t.Errorf("after promotion %d: %q", n+1, list)
		}
		if n == 0 { // as an earlier snapfs left it
			must(t, os.Remove(list[0]))
		}
	}
	if listed := git("status", "--porcelain", "-uall"); !strings.Contains(listed, "real/a") || strings.Contains(listed, ".snapfs-apply-") {
		t.Errorf("git status: %s", listed)
	}
	if gone := git("clean", "-fd", "-e", "base", "-e", "real", "-e", "sandbox", "-e", "state"); strings.Contains(gone, "snapfs-apply") {
		t.Errorf("git clean: %s", gone)
	}
	list, err := promote.Promotions(w.state())
	must(t, err)
	for _, p := range list {
		_, err := promote.UndoWith(t.Context(), w.state(), p.ID, promote.UndoOptions{})
		must(t, err)
	}
	if l := treetest.Lines(before, manifest(t, w)); len(l) > 0 {
		t.Errorf("undone: %q", l)
	}
	w.clean(t)
}
