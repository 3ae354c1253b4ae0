package merge_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/merge"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// live prepares an input whose base is not readable because it changed along with the
// real tree: real lists no changes, only the reason why each path is unknown.
func live(in *merge.Input, unknown map[string]string) {
	in.BaseTree, in.Real, in.Unknown = nil, nil, unknown
	in.OpenBase = func(path string) (*os.File, error) {
		return nil, &errs.Error{Op: "reading", Path: path, Kind: errs.ErrNotFound}
	}
}

func TestUnknownBaseIsAConflictUnlessSidesAreEqual(t *testing.T) {
	w := trees(t, "same\n1\n;both\n1\n;gone\n1\n;made\n1\n;touched\n1\n;mine\n1\n",
		"same\nx\n;both\nm\n;gone delete;made delete;touched time=10;mine\nm\n;new\nm\n",
		"same\nx\n;both\nr\n;gone delete;made\nr\n;touched time=20;new\nr\n")
	in := w.input()
	live(&in, map[string]string{
		"same": "", "both": "it was changed before anybody looked", "gone": "", "made": "", "touched": "", "new": "", "not-ours": "",
	})
	r := w.trees(in)
	want := "no-base both: it was changed before anybody looked\n" +
		"no-base made: changed on both sides, and the original is no longer available\n" +
		"no-base new: changed on both sides, and the original is no longer available\n"
	if got := conflictLines(r.Conflicts); got != want {
		t.Errorf("conflicts:\n%s\nwant:\n%s", got, want)
	}
	for _, c := range r.Conflicts {
		if c.Marked != (c.Path != "made") {
			t.Errorf("%s: marked %v", c.Path, c.Marked)
		}
	}
	if got := brief(r.Changes); got != "M \"mine\" content,time\n" {
		t.Errorf("changes:\n%s", got)
	}
}

func TestAnswerIsUsedWithoutABase(t *testing.T) {
	for choice, want := range map[merge.Choice]string{
		merge.Mine:   "both time=10s \"m\\n\"\nnew time=10s \"m\\n\"\n",
		merge.Theirs: "both time=20s \"r\\n\"\nmade time=20s \"r\\n\"\nnew time=20s \"r\\n\"\n",
	} {
		w := trees(t, "both\n1\n;made\n1\n", "both\nm\n;made delete;new\nm\n", "both\nr\n;made\nr\n;new\nr\n")
		in := w.input()
		live(&in, map[string]string{"both": "", "made": "", "new": ""})
		in.Choose = choose(choice)
		w.apply(in, w.trees(in))
		w.is(want)
	}
}

// The originals of some files are a sufficient base for these files.
func TestMissingOriginalIsAConflict(t *testing.T) {
	w := trees(t, "a\n1\n2\n3\n;b\n1\n2\n3\n;c\n1\n", "a\nm\n2\n3\n;b\nm\n2\n3\n;c\nx\n", "a\n1\n2\nr\n;b\n1\n2\nr\n;c\nx\n")
	in := w.input()
	in.BaseTree = nil
	in.OpenBase = func(path string) (*os.File, error) {
		if path != "a" {
			return nil, &errs.Error{Op: "reading", Path: path, Kind: errs.ErrNotFound}
		}
		return os.Open(filepath.Join(w.base, path))
	}
	r := w.trees(in)
	if got := conflictLines(r.Conflicts); !strings.HasPrefix(got, "no-base b: ") || len(r.Conflicts) != 1 {
		t.Errorf("conflicts:\n%s", got)
	}
	w.apply(in, r)
	w.is("a time=20.000000001s \"m\\n2\\nr\\n\"\nb time=20s \"1\\n2\\nr\\n\"\nc time=20s \"x\\n\"\n")
}

func TestUnreadableBaseIsAnError(t *testing.T) {
	w := trees(t, "f\n1\n", "f\nm\n", "f\nr\n")
	in := w.input()
	in.OpenBase = func(string) (*os.File, error) { return nil, os.ErrPermission }
	if _, err := merge.Trees(t.Context(), in); !errors.Is(err, errs.ErrDenied) {
		t.Errorf("%v", err)
	}
}

func TestFileThatChangesDuringTheMergeIsReported(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"written": func(path string) error { return os.WriteFile(path, []byte("later"), 0o644) },
		"gone":    os.Remove,
		"a link":  func(path string) error { return errors.Join(os.Remove(path), os.Symlink("/etc/passwd", path)) },
	} {
		w := trees(t, "f\n1\n", "f\nm\n", "f\nr\n")
		in := w.input()
		must(t, change(filepath.Join(w.mine, "f")))
		if _, err := merge.Trees(t.Context(), in); !errors.Is(err, errs.ErrBusy) && !errors.Is(err, errs.ErrInterrupted) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMergeCanBeInterrupted(t *testing.T) {
	w := trees(t, "f\n1\n", "f\nm\n", "f\nr\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := merge.Trees(ctx, w.input()); !errors.Is(err, errs.ErrInterrupted) {
		t.Errorf("%v", err)
	}
}

// Scratch contains exactly the paths in Built, as private files.
func TestScratchContainsOnlyBuiltFiles(t *testing.T) {
	w := trees(t, "a\n1\n2\n3\n;b mode=0644\n1\n2\n3\n", "a\nm\n2\n3\n;b mode=0600\nm\n2\n3\n", "a\n1\n2\nr\n;b mode=0755\n1\n2\nr\n")
	in := w.input()
	r := w.trees(in)
	if got := conflictLines(r.Conflicts); !strings.HasPrefix(got, "mode b: ") {
		t.Errorf("conflicts:\n%s", got)
	}
	left, err := os.ReadDir(in.Scratch)
	must(t, err)
	if len(left) != 1 || left[0].Name() != "a" || !r.Built["a"] || len(r.Built) != 1 {
		t.Errorf("in scratch: %v, built: %v", left, r.Built)
	}
}

// Trees does not modify its input, which belongs to the caller.
func TestInputIsNotModified(t *testing.T) {
	w := random(t, 7, 30)
	input := w.input()
	all := func() (text string) {
		for _, c := range append(slices.Clone(input.Mine), input.Real...) {
			text += fmt.Sprintf("%v %+v %+v\n", c, c.Old, c.New)
		}
		return text
	}
	before := all()
	w.trees(input)
	if all() != before {
		t.Error("the changes have been changed")
	}
}

func TestChangesAreSortedAndOldIsReal(t *testing.T) {
	for seed := range uint64(treetest.Budget(t, 12, 40)) {
		w := random(t, seed, 40)
		changes := w.trees(w.input()).Changes
		for i, c := range changes {
			if i > 0 && diff.ComparePaths(changes[i-1].Path, c.Path) >= 0 {
				t.Fatalf("seed %d: %q is out of order", seed, c.Path)
			}
			info, err := os.Lstat(filepath.Join(w.real, c.Path))
			switch {
			case c.Old == nil && err == nil, c.Old != nil && err != nil:
				t.Fatalf("seed %d: %s %q: %v", seed, c.Kind, c.Path, err)
			case c.Old != nil && (info.Mode() != c.Old.Mode || info.Mode().IsRegular() && (info.Size() != c.Old.Size || !info.ModTime().Equal(c.Old.MTime))):
				t.Fatalf("seed %d: %q: real has %v, the change says %v", seed, c.Path, info.Mode(), c.Old.Mode)
			}
		}
	}
}
