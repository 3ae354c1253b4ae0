package merge_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/merge"
	"github.com/snapfs/snapfs/errs"
)

// trees plays three lists of steps. A step is "PATH WORDS", then a line feed and the
// content, if any.
func trees(t testing.TB, base, mine, real string) *world {
	t.Helper()
	parse := func(all string) (steps []step) {
		for s := range strings.SplitSeq(all, ";") {
			if name, data, _ := strings.Cut(strings.TrimLeft(s, " "), "\n"); name != "" {
				steps = append(steps, parseStep(name, data))
			}
		}
		return steps
	}
	return script{base: parse(base), mine: parse(mine), real: parse(real)}.play(t)
}

func choose(choice merge.Choice) func(merge.Conflict) merge.Choice {
	return func(merge.Conflict) merge.Choice { return choice }
}

func (w *world) is(want string) {
	w.t.Helper()
	if got := list(w.t, w.target); got != want {
		w.t.Errorf("merged:\n%s\nwant:\n%s", got, want)
	}
}

func TestAnswerTakesOneSideOfTheWholePath(t *testing.T) {
	for _, c := range []struct{ name, base, mine, real, minesAll, realsAll string }{
		{
			"content", "f\n1\n", "f mode=0700\nm\n", "f\nr\n",
			"f mode=0700 time=10s \"m\\n\"\n", "f time=20s \"r\\n\"\n",
		},
		{"delete-change", "f\n1\n", "f delete", "f\nr\n", "", "f time=20s \"r\\n\"\n"},
		{"change-delete", "f\n1\n", "f\nm\n", "f delete", "f time=10s \"m\\n\"\n", ""},
		{
			"deleted directory", "d/a\n1\n;d/s/b\n2\n", "d delete", "d/s/new\nr\n",
			"", "d/\nd/a \"1\\n\"\nd/s/\nd/s/b \"2\\n\"\nd/s/new time=20s \"r\\n\"\n",
		},
		{
			"directory deleted in reality", "d/a\n1\n;d/s/b\n2\n", "d/s/new\nm\n", "d delete",
			"d/\nd/a \"1\\n\"\nd/s/\nd/s/b \"2\\n\"\nd/s/new time=10s \"m\\n\"\n", "",
		},
		{
			"file and directory", "", "n\nm\n", "n/x\nr\n",
			"n time=10s \"m\\n\"\n", "n/\nn/x time=20s \"r\\n\"\n",
		},
		{"two names", "a\none\ntwo\n", "b from=a", "c from=a", "b \"one\\ntwo\\n\"\n", "c \"one\\ntwo\\n\"\n"},
		{
			"two directories", "d/a\none\n;d/b\ntwo\n", "e from=d", "g from=d;g/r\nr\n",
			"e/\ne/a \"one\\n\"\ne/b \"two\\n\"\n", "g/\ng/a \"one\\n\"\ng/b \"two\\n\"\ng/r time=20s \"r\\n\"\n",
		},
		{
			"rename to what was added", "a\none\ntwo\n", "b from=a", "b\nr\n",
			"b \"one\\ntwo\\n\"\n", "a \"one\\ntwo\\n\"\nb time=20s \"r\\n\"\n",
		},
		{
			"hard link", "a\n1\n", "b link=a", "a\nr\n",
			"a \"1\\n\"\nb = a\n", "a time=20s \"r\\n\"\n",
		},
		{
			"mode of a directory", "d/a\n1\n", "d mode=0700", "d mode=0750;d/r\nr\n",
			"d/ mode=0700\nd/a \"1\\n\"\nd/r time=20s \"r\\n\"\n", "d/ mode=0750\nd/a \"1\\n\"\nd/r time=20s \"r\\n\"\n",
		},
	} {
		for choice, want := range map[merge.Choice]string{merge.Mine: c.minesAll, merge.Theirs: c.realsAll} {
			t.Run(c.name+map[merge.Choice]string{merge.Mine: " mine", merge.Theirs: " theirs"}[choice], func(t *testing.T) {
				w := trees(t, c.base, c.mine, c.real)
				in := w.input()
				in.Choose = choose(choice)
				r := w.trees(in)
				if len(r.Conflicts) > 0 {
					t.Errorf("left:\n%s", conflictLines(r.Conflicts))
				}
				if choice == merge.Theirs && len(r.Changes) > 0 && c.name != "hard link" {
					t.Errorf("the real side changes:\n%s", brief(r.Changes))
				}
				w.apply(in, r)
				w.is(want)
			})
		}
	}
}

// An answer chooses a file's content; the rename of its directory stays.
func TestAnswerFollowsTheOtherSidesDirectoryRename(t *testing.T) {
	long := strings.Repeat("a line that tells where it is from\n", 3)
	stay, move := "d/a\n"+long+"stays\n;d/b\n"+long+"stays\n", "e from=d;e/a\n"+long+"moves\n;e/b\n"+long+"moves\n"
	for _, c := range []struct {
		name, mine, real string
		choice           merge.Choice
	}{{"mine", stay, move, merge.Mine}, {"theirs", move, stay, merge.Theirs}} {
		t.Run(c.name, func(t *testing.T) {
			w := trees(t, "d/a\n"+long+"1\n;d/b\n"+long+"2\n;d/c\n"+long+"3\n", c.mine, c.real)
			in := w.input()
			in.Choose = choose(c.choice)
			r := w.trees(in)
			if len(r.Conflicts) > 0 {
				t.Errorf("left:\n%s", conflictLines(r.Conflicts))
			}
			w.apply(in, r)
			got := list(t, w.target)
			if strings.Count(got, "stays") != 2 || !strings.HasPrefix(got, "e/\ne/a ") {
				t.Errorf("merged:\n%s", got)
			}
		})
	}
}

func TestAnswerCanBeBuiltByATool(t *testing.T) {
	w := trees(t, "f mode=0700\n1\n;g\n1\n", "f mode=0700\nm\n;g\nm\n", "f mode=0700\nr\n;g\nr\n")
	in := w.input()
	in.Choose = func(c merge.Conflict) merge.Choice {
		if c.Path == "g" {
			return merge.Ask
		}
		must(t, os.WriteFile(filepath.Join(in.Scratch, c.Path), []byte("both\n"), 0o600))
		must(t, setTime(filepath.Join(in.Scratch, c.Path), began.AddDate(0, 0, 1)))
		return merge.Built
	}
	r := w.trees(in)
	if got := conflictLines(r.Conflicts); !strings.HasPrefix(got, "content g: ") {
		t.Errorf("left:\n%s", got)
	}
	w.apply(in, r)
	w.is("f mode=0700 time=24h0m0s \"both\\n\"\ng time=20s \"r\\n\"\n")
}

func TestMissingBuiltAnswerIsAnError(t *testing.T) {
	w := trees(t, "f\n1\n", "f\nm\n", "f\nr\n")
	in := w.input()
	in.Choose = choose(merge.Built)
	if _, err := merge.Trees(t.Context(), in); !errors.Is(err, errs.ErrNotFound) || !strings.Contains(err.Error(), "f") {
		t.Errorf("%v", err)
	}
	must(t, unix.Mkfifo(filepath.Join(in.Scratch, "f"), 0o600))
	if _, err := merge.Trees(t.Context(), in); !errors.Is(err, errs.ErrNotSupported) {
		t.Errorf("a fifo: %v", err)
	}
}

// Conflict markers written as an answer are what the user finds in the sandbox.
func TestMarkersShowBothSides(t *testing.T) {
	w := trees(t, "f\n1\n2\n3\n", "f\n1\nm\n3\n;n\nsame\nm\n", "f\n1\nr\n3\n;n\nsame\nr\n")
	in := w.input()
	r := w.trees(in)
	want := map[string]string{
		"f": "1\n<<<<<<< sandbox\nm\n||||||| base\n2\n=======\nr\n>>>>>>> real\n3\n",
		"n": "same\n<<<<<<< sandbox\nm\n||||||| base\n=======\nr\n>>>>>>> real\n",
	}
	if len(r.Conflicts) != len(want) {
		t.Fatalf("conflicts:\n%s", conflictLines(r.Conflicts))
	}
	for _, c := range r.Conflicts {
		var b bytes.Buffer
		must(t, merge.WriteMarkers(t.Context(), in, c, &b))
		if b.String() != want[c.Path] {
			t.Errorf("%s: %q, want %q", c.Path, b.String(), want[c.Path])
		}
		if !merge.HasMarkers(b.Bytes(), in.MineName, in.RealName) {
			t.Errorf("%s: its marks are not found", c.Path)
		}
	}
}

func TestOnlyTextsGetMarkers(t *testing.T) {
	w := trees(t, "f quoted\n\"\\x00\";d\n1\n;x\n1\n", "f quoted\n\"\\x00m\";d delete;x\nm\n", "f quoted\n\"\\x00r\";d\nr\n;x\nr\n")
	in := w.input()
	for _, c := range w.trees(in).Conflicts {
		if c.Marked != (c.Path == "x") {
			t.Errorf("%s %s: marked %v", c.Kind, c.Path, c.Marked)
		}
		if err := merge.WriteMarkers(t.Context(), in, c, &bytes.Buffer{}); c.Marked == errors.Is(err, errs.ErrNotSupported) {
			t.Errorf("%s %s: %v", c.Kind, c.Path, err)
		}
	}
}

func TestMarkersFollowRenames(t *testing.T) {
	long := strings.Repeat("a line that tells where it is from\n", 9)
	w := trees(t, "a\n"+long+"1\n", "b from=a\n"+long+"m\n", "a\n"+long+"r\n")
	in := w.input()
	r := w.trees(in)
	if len(r.Conflicts) != 1 || r.Conflicts[0].Path != "b" || r.Conflicts[0].RealPath != "a" || r.Conflicts[0].BasePath != "a" {
		t.Fatalf("conflicts: %+v", r.Conflicts)
	}
	var b bytes.Buffer
	must(t, merge.WriteMarkers(t.Context(), in, r.Conflicts[0], &b))
	if !strings.HasSuffix(b.String(), "<<<<<<< sandbox\nm\n||||||| base\n1\n=======\nr\n>>>>>>> real\n") {
		t.Errorf("%q", b.String())
	}
}

func TestSimilarTextIsNotTakenForMarkers(t *testing.T) {
	const all = "<<<<<<< m\n||||||| base\n=======\n>>>>>>> r\n"
	for text, want := range map[string]bool{
		all:                                      true,
		"x\n" + all + "y":                        true,
		strings.ReplaceAll(all, "\n", "\r\n"):    true,
		strings.TrimSuffix(all, "\n"):            true,
		"":                                       false,
		" " + all:                                false,
		strings.Replace(all, "=======\n", "", 1): false,
		strings.Replace(all, "||||||| base\n", "", 1):                    false,
		"<<<<<<< HEAD\n||||||| base\n=======\n>>>>>>> r\n":               false,
		"||||||| base\n=======\n>>>>>>> r\n<<<<<<< m\n":                  false,
		"<<<<<<< m\n||||||| base\n<<<<<<< m\n=======\n>>>>>>> r\n":       false,
		"heading\n=======\n" + all:                                       true,
		"<<<<<<< m\none\n||||||| base\ntwo\n=======\n=======\n>>>>>>> r": true,
	} {
		if got := merge.HasMarkers([]byte(text), "m", "r"); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
