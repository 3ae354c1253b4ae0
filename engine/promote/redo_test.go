package promote_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// undone undoes the only promotion so that it can be done again.
func (w *world) undone(t testing.TB) promote.Promotion {
	t.Helper()
	list, err := promote.Promotions(w.state())
	must(t, err)
	_, err = promote.UndoWith(t.Context(), w.state(), list[0].ID, promote.UndoOptions{Again: time.Now()})
	must(t, err)
	list, err = promote.Undones(w.state())
	must(t, err)
	return list[0]
}

func (w *world) redone(t testing.TB) {
	t.Helper()
	list, err := promote.Undones(w.state())
	must(t, err)
	_, err = promote.Redo(t.Context(), w.state(), list[0].ID, promote.UndoOptions{})
	must(t, err)
}

func TestRedoIsTheUndoOfAnUndo(t *testing.T) {
	before, after := mixed()
	w := newWorld(t, treetest.Dir(t), before, after)
	old := manifest(t, w)
	first := w.promoted(t, "s", w.frozen())
	promoted := manifest(t, w)
	for n := range 3 {
		u := w.undone(t)
		if l := treetest.Lines(old, manifest(t, w)); len(l) > 0 {
			t.Fatalf("undone, turn %d: %q", n, l)
		}
		list, err := promote.Promotions(w.state())
		if err != nil || len(list) > 0 || u.ID != first.ID || u.Applied != first.Applied || time.Since(u.Undone) > time.Hour || w.stages(t) != 1 {
			t.Errorf("turn %d: %+v can be undone, and %+v be done again: %v", n, list, u, err)
		}
		w.redone(t)
		if l := treetest.Lines(promoted, manifest(t, w)); len(l) > 0 {
			t.Fatalf("done again, turn %d: %q", n, l)
		}
	}
	w.undone(t)
	must(t, promote.Forget(t.Context(), w.state(), first.ID))
	if n := w.stages(t); n > 0 {
		t.Errorf("%d stages stay", n)
	}
	w.clean(t)
}

func TestRedoRefusesPathsChangedSince(t *testing.T) {
	before, after := scene()
	for path, change := range map[string]func(path string) error{
		"mod":    func(path string) error { return os.WriteFile(path, []byte("mine"), 0o644) },
		"mode":   func(path string) error { return os.Chmod(path, 0o640) },
		"new":    func(path string) error { return os.WriteFile(path, nil, 0o644) },
		"gone":   os.Remove,
		"olddir": func(path string) error { return os.WriteFile(path+"/mine", nil, 0o644) },
		"becomes-file": func(path string) error {
			path += "/x"
			st, err := os.Stat(path)
			return errors.Join(err, os.WriteFile(path, make([]byte, st.Size()), 0), os.Chtimes(path, st.ModTime(), st.ModTime()))
		},
	} {
		t.Run(path, func(t *testing.T) {
			w := newWorld(t, treetest.Dir(t), before, after)
			w.promoted(t, "s", w.frozen())
			u := w.undone(t)
			must(t, change(filepath.Join(w.real.Name(), path)))
			now := manifest(t, w)
			if _, err := promote.Redo(t.Context(), w.state(), u.ID, promote.UndoOptions{}); !errors.Is(err, errs.ErrDrifted) || !slices.Equal(w.listed(err), []string{path}) {
				t.Errorf("got %v", err)
			}
			if l := treetest.Lines(now, manifest(t, w)); len(l) > 0 {
				t.Errorf("refused, and touched %q", l)
			}
			if list, err := promote.Undones(w.state()); err != nil || len(list) != 1 {
				t.Errorf("not listed any more: %+v %v", list, err)
			}
		})
	}
}

// Promotions of one file that are undone one after another are done again in the other order.
func TestRedoOfTwoPromotionsOfOneFile(t *testing.T) {
	w := newWorld(t, treetest.Dir(t), treetest.Script{file("a", 1, 10)}, nil)
	base := w.frozen()
	base.Known = map[string]promote.Stamp{}
	states := []string{manifest(t, w)}
	for n := range 3 {
		must(t, os.WriteFile(w.sandbox.Name()+"/a", fmt.Append(nil, "version ", n), 0o644))
		for path, s := range w.promoted(t, "s", base).Stamps {
			base.Known[path] = s
		}
		states = append(states, manifest(t, w))
	}
	for range 2 {
		for n := 2; n >= 0; n-- {
			w.undone(t)
			if l := treetest.Lines(states[n], manifest(t, w)); len(l) > 0 {
				t.Fatalf("undone to %d: %q", n, l)
			}
		}
		for n := 1; n <= 3; n++ {
			w.redone(t)
			if l := treetest.Lines(states[n], manifest(t, w)); len(l) > 0 {
				t.Fatalf("done again to %d: %q", n, l)
			}
		}
	}
}

// What was undone and not done again is forgotten when ten newer ones are.
func TestOnlyTheLastTenUndosAreDoneAgain(t *testing.T) {
	w := newWorld(t, treetest.Dir(t), nil, nil)
	for n := range promote.History + 3 {
		must(t, os.WriteFile(filepath.Join(w.sandbox.Name(), fmt.Sprint("f", n)), nil, 0o644))
		w.promoted(t, fmt.Sprint("s", n), w.frozen())
		w.undone(t)
	}
	list, err := promote.Undones(w.state())
	if must(t, err); len(list) != promote.History || list[0].Sandbox != "s12" || w.stages(t) != promote.History {
		t.Errorf("%d stages, and %+v", w.stages(t), list)
	}
}

// Any of the paths can be undone alone, and the rest later, in any order, and all of it be
// done again.
func TestPathsAreUndoneAlone(t *testing.T) {
	before, after := mixed()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			w := newWorld(t, treetest.Dir(t), before, after)
			look := func() string {
				return treetest.Manifest(t, w.real.Name(), treetest.Options{NoDirTimes: true, NoLinks: true})
			}
			old := look()
			first := w.promoted(t, "s", w.frozen())
			promoted := look()
			_, alone, err := promote.Paths(w.state(), first.ID)
			must(t, err)
			undone := map[string]bool{}
			for _, path := range alone {
				undone[path] = false
			}
			for range 3 {
				list, err := promote.Promotions(w.state())
				must(t, err)
				share := r.Uint64()
				take := func(path string) bool {
					return !undone[path] && rand.New(rand.NewPCG(share, uint64(slices.Index(alone, path)))).IntN(3) == 0
				}
				for _, p := range list {
					_, paths, err := promote.Paths(w.state(), p.ID)
					must(t, err)
					if !slices.ContainsFunc(paths, take) {
						continue
					}
					_, err = promote.UndoWith(t.Context(), w.state(), p.ID, promote.UndoOptions{Again: time.Now(), Take: take})
					if errors.Is(err, errs.ErrConflict) && strings.Contains(err.Error(), "the same file as") {
						continue
					}
					must(t, err)
					for _, path := range paths {
						undone[path] = undone[path] || take(path)
					}
				}
				if l := treetest.Lines(mixture(old, promoted, undone), look()); len(l) > 0 {
					t.Fatalf("undone are %v: %q", undone, l)
				}
			}
			list, err := promote.Promotions(w.state())
			must(t, err)
			for _, p := range list {
				_, err = promote.UndoWith(t.Context(), w.state(), p.ID, promote.UndoOptions{Again: time.Now()})
				must(t, err)
			}
			if l := treetest.Lines(old, look()); len(l) > 0 {
				t.Errorf("all undone: %q", l)
			}
			list, err = promote.Undones(w.state())
			must(t, err)
			for range list {
				w.redone(t)
			}
			if l := treetest.Lines(promoted, look()); len(l) > 0 {
				t.Errorf("all done again: %q", l)
			}
			list, err = promote.Promotions(w.state())
			must(t, err)
			for _, p := range list {
				if w.stages(t) != 1 {
					t.Errorf("%d stages while %s needs one", w.stages(t), p.ID)
				}
				must(t, promote.Forget(t.Context(), w.state(), p.ID))
			}
			if l := treetest.Lines(promoted, look()); len(l) > 0 {
				t.Errorf("forgotten: %q", l)
			}
			w.clean(t)
		})
	}
}

// mixture returns the manifest of a tree in which the paths are undone for which undone has
// true.
func mixture(old, promoted string, undone map[string]bool) string {
	var all strings.Builder
	for _, from := range []struct {
		manifest string
		undone   bool
	}{{old, true}, {promoted, false}} {
		for line := range strings.Lines(from.manifest) {
			at, _, _ := strings.Cut(line, "\t")
			at = strings.Trim(at, `"`)
			for _, known := undone[at]; !known && strings.Contains(at, "/"); _, known = undone[at] {
				at = at[:strings.LastIndex(at, "/")]
			}
			if undone[at] == from.undone {
				all.WriteString(line)
			}
		}
	}
	return all.String()
}

// somePaths selects half of the paths of mixed.
func somePaths(path string) bool {
	return slices.Contains([]string{"mod", "gone", "olddir", "becomes-file", "new", "closed/mod", "closed/new", "dir", "attr"}, path)
}

func TestUndoAndRedoKilledAtEverySystemCallLeaveTheOldTreeOrTheNew(t *testing.T) {
	top := treetest.NewDisk(t, "ext4").Dir
	for _, command := range []string{"again", "redo"} {
		atEveryCall(t, top, command, runtimes+" "+reads, func(c *crash, n int) bool {
			list, err := promote.Promotions(c.w.state())
			must(c.t, err)
			undone, err := promote.Undones(c.w.state())
			must(c.t, err)
			switch {
			case len(list)+len(undone) == 0:
				c.w.promoted(c.t, "s", c.w.frozen())
				if command == "redo" {
					c.w.undone(c.t)
				}
			case command == "again" && len(list) == 0:
				c.w.redone(c.t)
			case command == "redo" && len(undone) == 0:
				c.w.undone(c.t)
			}
			killed := c.kill(command, n)
			isNew := c.recovered(fmt.Sprint(command, ", call ", n))
			list, err = promote.Promotions(c.w.state())
			must(c.t, err)
			undone, err = promote.Undones(c.w.state())
			must(c.t, err)
			if !killed && isNew != (command == "redo") || isNew != (len(list) == 1) || isNew == (len(undone) == 1) {
				c.t.Fatalf("%s, call %d: new %t, %d to be undone and %d to be done again", command, n, isNew, len(list), len(undone))
			}
			return killed
		})
	}
}

// A part that is undone, killed, and completed is undone wholly with the rest.
func TestUndoOfPathsKilledAtEverySystemCallLosesNothing(t *testing.T) {
	atEveryCall(t, treetest.NewDisk(t, "ext4").Dir, "part", runtimes+" "+reads, func(c *crash, n int) bool {
		c.w.promoted(c.t, "s", c.w.frozen())
		killed := c.kill("part", n)
		if _, err := promote.Recover(c.t.Context(), c.w.state()); err != nil {
			c.t.Fatal(err)
		}
		list, err := promote.Promotions(c.w.state())
		must(c.t, err)
		for _, p := range list {
			if _, err := promote.Undo(c.t.Context(), c.w.state(), p.ID); err != nil {
				c.t.Fatalf("call %d: %v", n, err)
			}
		}
		undone, err := promote.Undones(c.w.state())
		must(c.t, err)
		for _, p := range undone {
			must(c.t, promote.Forget(c.t.Context(), c.w.state(), p.ID))
		}
		if c.whole(fmt.Sprint("part, call ", n), false) || !killed && len(undone) != 1 {
			c.t.Fatalf("call %d: %d parts could be done again, and the new tree is there", n, len(undone))
		}
		return killed
	})
}
