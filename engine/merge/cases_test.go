package merge_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/snapfs/snapfs/internal/treetest"
)

// A script is one case: the steps that create the base, the steps that change it on each
// side, the expected merged tree and the expected conflicts. A line "root" in its comment
// says that it needs root.
type script struct {
	comment           string
	base, mine, real  []step
	merged, conflicts string
}

func readScript(t testing.TB, file string) script {
	t.Helper()
	a, err := txtar.ParseFile(file)
	must(t, err)
	s := script{comment: string(a.Comment)}
	for _, f := range a.Files {
		where, name, _ := strings.Cut(f.Name, "/")
		switch data := string(f.Data); where {
		case "base":
			s.base = append(s.base, parseStep(name, data))
		case "mine":
			s.mine = append(s.mine, parseStep(name, data))
		case "real":
			s.real = append(s.real, parseStep(name, data))
		case "merged":
			s.merged = data
		case "conflicts":
			s.conflicts = data
		default:
			t.Fatalf("%s: %q is none of the parts of a case", file, f.Name)
		}
	}
	return s
}

// play creates the trees of a case.
func (s script) play(t testing.TB) *world {
	t.Helper()
	w := newWorld(t)
	always := func(string) bool { return true }
	never := func(string) bool { return false }
	for _, root := range []string{w.base, w.mine, w.real, w.target} {
		play(t, root, 0, s.base, always)
	}
	play(t, w.mine, 10, s.mine, never)
	play(t, w.real, 20, s.real, never)
	play(t, w.target, 20, s.real, never)
	return w
}

// The cases are those of git's own merge tests, and further ones that git cannot express.
// Each file in testdata has three trees and the expected result.
func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	must(t, err)
	if len(files) < 110 {
		t.Errorf("%d cases, of at least 110", len(files))
	}
	g := needGit(t)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			s := readScript(t, file)
			if strings.Contains(s.comment, "\nroot\n") {
				treetest.NeedRoot(t)
			}
			w := s.play(t)
			in := w.input()
			r := w.trees(in)
			w.apply(in, r)
			if got := list(t, w.target); got != s.merged {
				t.Errorf("merged:\n%s\nwant:\n%s", got, s.merged)
			}
			if got := conflictLines(r.Conflicts); got != s.conflicts {
				t.Errorf("conflicts:\n%s\nwant:\n%s", got, s.conflicts)
			}
			w.gitAgrees(g, t)
		})
	}
}

// gitAgrees compares with git's merge of every file that is a text in all three trees.
func (w *world) gitAgrees(g *git, t *testing.T) {
	t.Helper()
	g.t = t
	must(t, filepath.WalkDir(w.base, func(path string, e os.DirEntry, err error) error {
		rel, _ := filepath.Rel(w.base, path)
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		var texts [3][]byte
		for i, root := range []string{w.base, w.mine, w.real} {
			if info, err := os.Lstat(filepath.Join(root, rel)); err != nil || !info.Mode().IsRegular() {
				return nil //nolint:nilerr //nolint:nilerr // git merges only files of all three trees
			}
			texts[i], err = os.ReadFile(filepath.Join(root, rel))
			must(t, err)
			if bytes.IndexByte(texts[i][:min(len(texts[i]), 8000)], 0) >= 0 {
				return nil
			}
		}
		g.agree(rel, texts[0], texts[1], texts[2])
		return nil
	}))
}
