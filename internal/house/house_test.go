package house

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// built is what `make build` and the tests leave there.
var built = []string{"snapfs", "snapfs-bench", "snapfs-edge", "snapfs-fuse", "snapfs-serve", "out"}

// TestRootIsReadAtAGlance: a reader who opens the repository sees the domain,
// not its tooling.
func TestRootIsReadAtAGlance(t *testing.T) {
	const most = 22
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var visible []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(built, e.Name()) {
			visible = append(visible, e.Name())
		}
	}
	if len(visible) < 5 || len(visible) > most {
		t.Errorf("%d visible entries in the root, at most %d: %q", len(visible), most, visible)
	}
}

// TestFilesAreShort: a file has one topic, and a topic fits in 500 lines.
func TestFilesAreShort(t *testing.T) {
	const most = 500
	for path, src := range goFiles(t) {
		if n := bytes.Count(src, []byte("\n")); n > most {
			t.Errorf("%s: %d lines, at most %d: split it by topic", path, n, most)
		}
	}
}

// TestPackagesAreSmall: a package has one promise, and a promise fits in 4,500 lines of code and
// comments. The command is exempt: its files are one command each.
func TestPackagesAreSmall(t *testing.T) {
	const most = 4500
	command := filepath.Join(root, "cmd", "snapfs")
	lines := map[string]int{}
	for path, src := range goFiles(t) {
		if dir := filepath.Dir(path); dir != command && !strings.HasSuffix(path, "_test.go") {
			lines[dir] += bytes.Count(src, []byte("\n"))
		}
	}
	for dir, n := range lines {
		if n > most {
			t.Errorf("%s: %d lines without tests, at most %d: find the second promise in it", dir, n, most)
		}
	}
}

// TestNothingIsPutOff: what is not done is an issue, not a comment.
func TestNothingIsPutOff(t *testing.T) {
	for path, src := range goFiles(t) {
		fset, file := parse(t, path, src)
		for _, group := range file.Comments {
			for _, c := range group.List {
				for _, word := range []string{"TO" + "DO", "FIX" + "ME", "XX" + "X:", "HA" + "CK"} {
					if strings.Contains(c.Text, word) {
						t.Errorf("%s: %s in a comment", fset.Position(c.Pos()), word)
					}
				}
			}
		}
	}
}

// TestErrorsSayWhatNotThatTheyFailed: an error names what was being done and
// why it did not work; that it did not, its being an error says.
func TestErrorsSayWhatNotThatTheyFailed(t *testing.T) {
	words := []string{"fail" + "ed to ", "un" + "able to ", "error" + " while "}
	for path, src := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		fset, file := parse(t, path, src)
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			for _, w := range words {
				if strings.Contains(strings.ToLower(lit.Value), w) {
					t.Errorf("%s: %q in a message: say what was being done, then the cause", fset.Position(lit.Pos()), w)
				}
			}
			return true
		})
	}
}

// TestErrorTypesAreFew: a failure is an errs.Error, a sentinel or a text. A type of its own has
// a caller that reads more of it; its comment says what.
func TestErrorTypesAreFew(t *testing.T) {
	const want = "CommandError Error Error Error Problem Problem StageError Status"
	var types []string
	for path, src := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		fset, file := parse(t, path, src)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil && n.Name.Name == "Error" && n.Type.Params.NumFields() == 0 {
					types = append(types, strings.TrimPrefix(string(src[n.Recv.List[0].Type.Pos()-file.FileStart:n.Recv.List[0].Type.End()-file.FileStart]), "*"))
				}
			case *ast.StructType:
				for _, f := range n.Fields.List {
					if id, ok := f.Type.(*ast.Ident); ok && id.Name == "error" && f.Names == nil {
						t.Errorf("%s: a struct that embeds an error is a type of error", fset.Position(f.Pos()))
					}
				}
			}
			return true
		})
	}
	slices.Sort(types)
	if got := strings.Join(types, " "); got != want {
		t.Errorf("types with a method Error: %s; want %s", got, want)
	}
}

// TestPackagesHavePromisesNotDrawers: a package that is named for nothing
// collects everything.
func TestPackagesHavePromisesNotDrawers(t *testing.T) {
	drawers := map[string]bool{"util": true, "utils": true, "common": true, "helpers": true, "misc": true, "base": true, "shared": true}
	for path := range goFiles(t) {
		if dir := filepath.Base(filepath.Dir(path)); drawers[dir] {
			t.Errorf("%s: no package is called %s: name it for its promise", path, dir)
		}
	}
}

// goFiles reads all hand-written Go files of the repository, by path.
func goFiles(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "out"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		src, err := os.ReadFile(path)
		if err == nil && !bytes.HasPrefix(src, []byte("// Code generated ")) {
			files[path] = src
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 5 {
		t.Fatalf("only %d Go files beneath %s: this looked in the wrong place", len(files), root)
	}
	return files
}

func parse(t *testing.T, path string, src []byte) (*token.FileSet, *ast.File) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, src, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return fset, file
}
