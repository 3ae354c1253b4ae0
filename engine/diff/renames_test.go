package diff_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// renames pairs all changes of w; blind leaves out the old tree.
func (w twins) renames(opt diff.Options, blind bool) []diff.Rename {
	w.t.Helper()
	old, new := treetest.Open(w.t, w.old), treetest.Open(w.t, w.new)
	changes := w.trees(opt)
	before := brief(changes)
	if blind {
		old = nil
	}
	found, err := diff.Renames(context.Background(), old, new, changes, opt)
	w.do(err)
	if brief(changes) != before {
		w.t.Errorf("the changes are not what they were:\n%s\nbefore:\n%s", brief(changes), before)
	}
	return found
}

func briefly(found []diff.Rename) string {
	var lines []string
	for _, r := range found {
		line := fmt.Sprintf("%s -> %s %d%%", r.From, r.To, r.Similarity)
		if r.Exact {
			line = fmt.Sprintf("%s -> %s exact", r.From, r.To)
		}
		if r.Dir {
			line += " dir"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func (w twins) wantRenames(found []diff.Rename, want ...string) {
	w.t.Helper()
	if got := briefly(found); got != strings.Join(want, "\n") {
		w.t.Errorf("renames:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

func lines(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "this is line %03d\n", i) // 17 bytes
	}
	return b.String()
}

func fill(root string, files map[string]string) error {
	for path, content := range files {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		if target, ok := strings.CutPrefix(content, "->"); ok {
			if err := os.Symlink(target, full); err != nil {
				return err
			}
		} else if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func TestEqualContentIsARename(t *testing.T) {
	for name, c := range map[string]struct {
		old, new map[string]string
		want     []string
	}{
		"moved":             {map[string]string{"a": "1\n"}, map[string]string{"b": "1\n"}, []string{"a -> b exact"}},
		"same size, other":  {map[string]string{"a": "1\n"}, map[string]string{"b": "2\n"}, nil},
		"a copy is none":    {map[string]string{"a": "1\n"}, map[string]string{"a": "1\n", "b": "1\n"}, nil},
		"empty files":       {map[string]string{"a": ""}, map[string]string{"b": ""}, nil},
		"links":             {map[string]string{"a": "->x"}, map[string]string{"b": "->x"}, []string{"a -> b exact"}},
		"a link is no file": {map[string]string{"a": "->x"}, map[string]string{"b": "x"}, nil},
		"by name first": {
			map[string]string{"p/one": "x", "p/two": "x"},
			map[string]string{"q/two": "x", "q/zero": "x", "r/one": "x"},
			[]string{"p/two -> q/two exact", "p/one -> r/one exact"},
		},
		"edited, and half":      {map[string]string{"a": lines(0, 100)}, map[string]string{"b": lines(0, 50) + lines(200, 250)}, []string{"a -> b 50%"}},
		"edited, less":          {map[string]string{"a": lines(0, 100)}, map[string]string{"b": lines(0, 49) + lines(200, 251)}, nil},
		"binary is not alike":   {map[string]string{"a": "\x00" + lines(0, 100)}, map[string]string{"b": "\x00" + lines(0, 99)}, nil},
		"the most alike":        {map[string]string{"a": lines(0, 100)}, map[string]string{"b": lines(0, 60), "c": lines(0, 90)}, []string{"a -> c 90%"}},
		"the same name, though": {map[string]string{"p/a": lines(0, 100)}, map[string]string{"b": lines(0, 90), "q/a": lines(0, 60)}, []string{"p -> q exact dir", "p/a -> q/a 60%"}},
		"a directory": {
			map[string]string{"d/a": "1", "d/e/b": "22", "d/e/empty": ""},
			map[string]string{"f/a": "1", "f/e/b": "22", "f/e/empty": ""},
			[]string{"d -> f exact dir", "d/a -> f/a exact", "d/e -> f/e exact dir", "d/e/b -> f/e/b exact", "d/e/empty -> f/e/empty exact"},
		},
		"a directory, one edited": {
			map[string]string{"d/a": lines(0, 10), "d/b": "22"},
			map[string]string{"f/a": lines(0, 9), "f/b": "22", "f/new": "333"},
			[]string{"d -> f exact dir", "d/a -> f/a 90%", "d/b -> f/b exact"},
		},
		"a directory, one left": {
			map[string]string{"d/a": "1", "d/b": "22"}, map[string]string{"f/a": "1"}, []string{"d/a -> f/a exact"},
		},
		"a directory, split": {
			map[string]string{"d/a": "1", "d/b": "22"}, map[string]string{"f/a": "1", "g/b": "22"}, []string{"d/a -> f/a exact", "d/b -> g/b exact"},
		},
		"into one that was there": {
			map[string]string{"d/a": "1", "f/x": "3"}, map[string]string{"f/a": "1", "f/x": "3"}, []string{"d/a -> f/a exact"},
		},
		"one of two alike": {
			map[string]string{"d/LICENSE": "l", "d/a": "1", "e/LICENSE": "l", "e/b": "22"},
			map[string]string{"x/LICENSE": "l", "x/b": "22", "y/LICENSE": "l", "y/a": "1"},
			[]string{"d/LICENSE -> x/LICENSE exact", "e/b -> x/b exact", "e/LICENSE -> y/LICENSE exact", "d/a -> y/a exact"},
		},
		"within itself": {
			map[string]string{"d/a": "1"}, map[string]string{"d/d/a": "1"}, []string{"d/a -> d/d/a exact"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := makeTwins(t)
			w.do(fill(w.old, c.old), fill(w.new, c.new))
			w.wantRenames(w.renames(diff.Options{}, false), c.want...)
		})
	}
}

func TestSameInodeIsARename(t *testing.T) {
	w := snapshots(t, func(root string) {
		err := fill(root, map[string]string{
			"src/a": "1", "src/b": "2", "src/sub/c": "3", "plain": "x", "binary": "\x00old", "empty": "", "rewritten": lines(0, 10), "l1": "link", "other": "y",
		})
		if err == nil {
			err = errors.Join(os.Link(filepath.Join(root, "l1"), filepath.Join(root, "l2")), unix.Mkfifo(filepath.Join(root, "pipe"), 0o600), os.Mkdir(filepath.Join(root, "hollow"), 0o755))
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * diff.Racy)
	})
	at := func(name string) string { return filepath.Join(w.new, name) }
	for _, name := range []string{"src", "plain", "binary", "empty", "rewritten", "l1", "l2", "pipe", "hollow"} {
		w.do(os.Rename(at(name), at("new-"+name)))
	}
	w.do(
		write(w.new, "new-binary", "\x00entirely different"), write(w.new, "new-rewritten", lines(0, 5)),
		os.Remove(at("new-src/a")), write(w.new, "new-src/a", "an editor wrote this anew"), os.Remove(at("new-src/sub/c")),
		write(w.new, "copy", "y"), os.Remove(at("other")),
	)
	w.wantRenames(w.renames(diff.Options{SameInodes: true, Taken: time.Now()}, false),
		"other -> copy exact", "binary -> new-binary 0%", "empty -> new-empty exact", "hollow -> new-hollow exact dir",
		"l1 -> new-l1 exact", "l2 -> new-l2 exact", "pipe -> new-pipe exact", "plain -> new-plain exact", "rewritten -> new-rewritten 50%",
		"src -> new-src exact dir", "src/a -> new-src/a 0%", "src/b -> new-src/b exact", "src/sub -> new-src/sub exact dir")
	w.wantRenames(w.renames(diff.Options{SameInodes: true, Taken: time.Now()}, true),
		"empty -> new-empty exact", "hollow -> new-hollow exact dir", "l1 -> new-l1 exact", "l2 -> new-l2 exact", "pipe -> new-pipe exact", "plain -> new-plain exact",
		"src -> new-src exact dir", "src/b -> new-src/b exact", "src/sub -> new-src/sub exact dir")
}

func TestARenameInAnOverlayIsFound(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedFS(t, "overlay")
	w := makeTwins(t)
	w.do(fill(w.old, map[string]string{"d/a": lines(0, 10), "d/b": "22", "f": "moved"}))
	w.overlaid()
	w.do(os.Rename(filepath.Join(w.new, "f"), filepath.Join(w.new, "g")), os.Rename(filepath.Join(w.new, "d"), filepath.Join(w.new, "e")),
		write(w.new, "e/a", lines(1, 10)))
	w.wantRenames(w.renames(diff.Options{OverlayViews: true}, false), "d -> e exact dir", "d/a -> e/a 90%", "d/b -> e/b exact", "f -> g exact")
}

// The files of a moved directory are recognised without being read: the roots handed to the search
// are empty here.
func TestFilesOfAMovedDirectoryAreNotRead(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedFS(t, "overlay")
	w := makeTwins(t)
	w.do(fill(w.old, map[string]string{"d/a": "one", "d/b": "two", "d/sub/c": "six"}))
	w.overlaid()
	w.do(os.Rename(filepath.Join(w.new, "d"), filepath.Join(w.new, "e")), write(w.new, "e/b", "new"))
	opt := diff.Options{OverlayViews: true, Taken: time.Now().Add(time.Second)}
	search := func(opt diff.Options) []diff.Rename {
		empty := treetest.Open(t, t.TempDir())
		found, err := diff.Renames(t.Context(), empty, empty, w.trees(opt), opt)
		w.do(err)
		return found
	}
	w.wantRenames(search(opt), "d/a -> e/a exact", "d/sub -> e/sub exact dir", "d/sub/c -> e/sub/c exact")
	opt.Taken = time.Now().Add(-time.Hour)
	w.wantRenames(search(opt))
}

// The search reads no hole of a huge renamed file, and each of many files of one size once.
func TestRenamesOfHugeSparseFilesAreFound(t *testing.T) {
	w := makeTwins(t)
	const size = 1 << 40
	for i, name := range []string{"x", "y", "z"} {
		for _, at := range []string{filepath.Join(w.old, name), filepath.Join(w.new, "new-"+name)} {
			f, err := os.Create(at)
			w.do(err)
			_, err = f.WriteAt([]byte{byte('0' + i)}, size/2)
			w.do(err, f.Truncate(size), f.Close())
		}
	}
	f, err := os.OpenFile(filepath.Join(w.new, "new-y"), os.O_WRONLY, 0)
	w.do(err)
	_, err = f.WriteAt(make([]byte, 1<<20), size/4) // written zeros equal a hole
	w.do(err, f.Close())
	w.wantRenames(w.renames(diff.Options{}, false), "x -> new-x exact", "y -> new-y exact", "z -> new-z exact")
}

func TestTheSearchForRenamesIsBounded(t *testing.T) {
	w := makeTwins(t)
	old, new := map[string]string{}, map[string]string{}
	for i := range 600 {
		old[fmt.Sprintf("old/%d/name%d", i, i)] = lines(i, i+20)
		new[fmt.Sprintf("new/%d/other%d", i, i)] = lines(i, i+19)
	}
	old["old/same"], new["new/same"] = lines(900, 920), lines(900, 919)
	w.do(fill(w.old, old), fill(w.new, new))
	start := time.Now()
	w.wantRenames(w.renames(diff.Options{}, false), "old/same -> new/same 95%") // 601 × 601 pairs are too many
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	ctx, cancel := context.WithCancel(context.Background())
	changes := w.trees(diff.Options{})
	cancel()
	if _, err := diff.Renames(ctx, treetest.Open(t, w.old), treetest.Open(t, w.new), changes, diff.Options{}); !errors.Is(err, errs.ErrInterrupted) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestRenamesPairEachPathOnceAndRepeat(t *testing.T) {
	treetest.NeedRoot(t)
	pairs := 0
	for seed := range uint64(60) {
		w := makeTwins(t)
		r := rand.New(rand.NewPCG(seed, 8))
		for range 60 {
			mutate(r, w.old)
		}
		w.do(run.Run(context.Background(), run.Program{Name: "cp", Args: []string{"-a", w.old + "/.", w.new}}))
		for range 20 {
			mutate(r, w.new)
		}
		for i := range 8 {
			paths, err := filepath.Glob(filepath.Join(w.new, []string{"*", "*/*"}[i%2]))
			w.do(err)
			if len(paths) > 0 {
				w.do(os.Rename(paths[r.IntN(len(paths))], filepath.Join(w.new, fmt.Sprint("moved", i))))
			}
		}
		changes := map[string]diff.Kind{}
		for _, c := range w.trees(diff.Options{}) {
			changes[c.Path] = c.Kind
		}
		found := w.renames(diff.Options{}, false)
		var ends []string
		for i, x := range found {
			ends = append(ends, x.From, x.To)
			if changes[x.From] != diff.Deleted || changes[x.To] != diff.Added || i > 0 && diff.ComparePaths(found[i-1].To, x.To) >= 0 {
				t.Errorf("seed %d: %v in\n%s", seed, x, briefly(found))
			}
		}
		slices.Sort(ends)
		if len(slices.Compact(ends)) != 2*len(found) {
			t.Errorf("seed %d: a path is paired twice:\n%s", seed, briefly(found))
		}
		w.wantRenames(w.renames(diff.Options{}, false), strings.Split(briefly(found), "\n")...)
		pairs += len(found)
	}
	if pairs < 50 {
		t.Errorf("only %d pairs in all", pairs)
	}
}
