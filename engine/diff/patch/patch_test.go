package patch_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/diff/patch"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// A tree maps paths to contents; "->x" is a symbolic link to x, and "!" before the content
// makes the file executable.
type tree map[string]string

func (tr tree) build(t *testing.T, root string) {
	t.Helper()
	for path, content := range tr {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		body, exec := strings.CutPrefix(content, "!")
		mode := fs.FileMode(0o644)
		if exec {
			mode = 0o755
		}
		var err error
		if target, link := strings.CutPrefix(content, "->"); link {
			err = os.Symlink(target, full)
		} else {
			err = os.WriteFile(full, []byte(body), mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// read is the inverse of build.
func read(t *testing.T, root string) tree {
	t.Helper()
	tr := tree{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.Type() == fs.ModeSymlink {
			target, err := os.Readlink(path)
			tr[rel] = "->" + target
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		tr[rel] = string(b)
		if info.Mode()&0o100 != 0 {
			tr[rel] = "!" + tr[rel]
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

type sides struct{ dir, old, new string }

func buildBoth(t *testing.T, old, new tree) sides {
	t.Helper()
	dir := treetest.Dir(t)
	s := sides{dir, filepath.Join(dir, "old"), filepath.Join(dir, "new")}
	for root, tr := range map[string]tree{s.old: old, s.new: new} {
		if err := os.Mkdir(root, 0o755); err != nil {
			t.Fatal(err)
		}
		tr.build(t, root)
	}
	return s
}

func (s sides) write(t *testing.T) []byte {
	t.Helper()
	old, new := treetest.Open(t, s.old), treetest.Open(t, s.new)
	changes, err := diff.Trees(context.Background(), old, new, diff.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	renames, err := diff.Renames(context.Background(), old, new, changes, diff.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := patch.Write(context.Background(), &out, old, new, changes, patch.Options{Renames: renames}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// applies checks that git turns the old tree into the new one, and back.
func (s sides) applies(t *testing.T, text []byte, old, new tree) {
	t.Helper()
	file := filepath.Join(s.dir, "patch")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir  string
		args []string
		want tree
	}{{s.old, []string{"apply", file}, new}, {s.new, []string{"apply", "-R", file}, old}} {
		git(t, c.dir, c.args...)
		if got := read(t, c.dir); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("after %v:\n%q\nwant\n%q\nby\n%s", c.args, got, c.want, text)
		}
	}
}

var oldTree = tree{
	"keep": "same\n", "edit": "a\nb\nc\nd\ne\nf\ng\nh\n", "noeol": "x", "eol": "x\n", "crlf": "a\r\nb\r\n",
	"bin": "\x00\x01old", "gone": "bye\n", "gone-bin": "\x00", "emptied": "full\n", "filled": "", "was-empty": "",
	"exec": "!run\n", "plain": "run\n", "link": "->keep", "to-link": "file\n", "to-file": "->keep",
	"file-to-dir": "f\n", "dir-to-file/x/y": "deep\n", "link-to-dir": "->keep", "dir/with space": "1\n",
	"quo\"te\\": "1\n", "tab\tnew\nline": "1\n", "\xff\xfe": "1\n", "trail ": "1\n", "latin": "caf\xe9\n",
	strings.Repeat("n", 255): "1\n", "-dash": "1\n", "long": strings.Repeat("x", 100_000) + "\n", "dot": "--- a/x\n+++ b/x\n",
}

var newTree = tree{
	"keep": "same\n", "edit": "a\nb\nC\nd\ne\nf\ng\nh\ni\n", "noeol": "y", "eol": "x", "crlf": "a\r\nB\n",
	"bin": "\x00\x01new" + strings.Repeat("\x07longer", 99), "emptied": "", "filled": "now\n", "new-empty": "",
	"exec": "run\n", "plain": "!ran\n", "link": "->edit", "to-link": "->keep", "to-file": "file\n",
	"file-to-dir/a": "d\n", "dir-to-file": "f\n", "link-to-dir/b": "d\n", "dir/with space": "2\n",
	"quo\"te\\": "2\n", "tab\tnew\nline": "2\n", "\xff\xfe": "2\n", "trail ": "2\n", "latin": "caf\xe8\n",
	strings.Repeat("n", 255): "2\n", "-dash": "!2\n", "long": strings.Repeat("y", 100_000) + "\n", "dot": "-- a/x\n++ b/x\n",
	"new-bin": "!\x00\xff", "new/deep/er": "\n", "new-link": "->no/such\n", "new name\t\"": "no newline",
}

func TestGitTurnsOneTreeIntoTheOther(t *testing.T) {
	s := buildBoth(t, oldTree, newTree)
	s.applies(t, s.write(t), oldTree, newTree)
}

func TestGitTurnsOneTreeIntoTheOtherOnRandomText(t *testing.T) {
	for seed := range uint64(treetest.Budget(t, 5, 15)) {
		r := rand.New(rand.NewPCG(seed, 7))
		old, new := tree{}, tree{}
		for i := range 12 {
			name := fmt.Sprint("f", i)
			old[name], new[name] = randomText(r), randomText(r)
		}
		s := buildBoth(t, old, new)
		s.applies(t, s.write(t), old, new)
	}
}

// randomText returns up to thirty lines of few kinds, so that two texts have much in common;
// one in eight is binary.
func randomText(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(30) {
		b.WriteString([]string{"a\n", "b\n", "c\n", "\n", "\r\n"}[r.IntN(5)])
	}
	b.WriteString([]string{"", "end", " ", "\r"}[r.IntN(4)])
	if r.IntN(8) == 0 {
		b.WriteByte(0)
		for range r.IntN(200) {
			b.WriteByte(byte(r.IntN(256)))
		}
	}
	return b.String()
}

func TestGitAppliesRenames(t *testing.T) {
	text := strings.Repeat("one\ntwo\nthree\n", 20)
	shout := strings.ToUpper(text)
	old := tree{"a": text, "same": "1\n", "exec": "run\n", "link": "->x", "dir/x": "xx\n", "dir/y": "y\n" + shout, "\xff old": "odd\n", "file": "f\n", "was/f": "g\n"}
	new := tree{
		"b": "zero\n" + text, "other": "1\n", "tool": "!run\n", "ln": "->x", "moved/x": "xx\n", "moved/y": shout, "\xfe new": "odd\n",
		"file/in": "f\n", "was": "g\n",
	}
	s := buildBoth(t, old, new)
	got := string(s.write(t))
	for _, want := range []string{
		"rename from a\nrename to b\n", "similarity index 100%\nrename from same\nrename to other\n", "old mode 100644\nnew mode 100755\nsimilarity index 100%\nrename from exec",
		"rename from link\nrename to ln\n", "rename from dir/x\nrename to moved/x\n", `rename from "\377 old"` + "\n" + `rename to "\376 new"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the patch lacks %q:\n%s", want, got)
		}
	}
	s.applies(t, []byte(got), old, new)
}

func TestLargeTextIsWrittenAsBinary(t *testing.T) {
	old := tree{"large": strings.Repeat("line\n", patch.TextMax/5+1)}
	new := tree{"large": old["large"] + "more\n"}
	s := buildBoth(t, old, new)
	text := s.write(t)
	if len(text) > 1<<20 || !bytes.Contains(text, []byte("GIT binary patch")) {
		t.Errorf("a patch of %d bytes, which begins\n%.300s", len(text), text)
	}
	s.applies(t, text, old, new)
}

func TestDifferencesThatGitCannotRepresentAreListed(t *testing.T) {
	treetest.NeedRoot(t)
	old, new := tree{"f": "1\n", "repo/.git/config": "a\n"}, tree{"f": "1\n", "repo/.git/config": "b\n"}
	s := buildBoth(t, old, new)
	for _, err := range []error{
		os.Mkdir(filepath.Join(s.new, "empty"), 0o755), syscall.Mkfifo(filepath.Join(s.new, "pipe"), 0o600),
		os.Chown(filepath.Join(s.new, "f"), 12, 34), os.Chmod(filepath.Join(s.new, "f"), 0o600),
		syscall.Setxattr(filepath.Join(s.new, "f"), "user.k", []byte("v"), 0),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	text := string(s.write(t))
	for _, want := range []string{
		"#   empty: added empty directory\n", "#   pipe: added fifo\n", "#   repo/.git/config: modified, content",
		"#   f: mode 0644 to 0600, owner 0:0 to 12:34, extended attributes\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the patch lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "diff --git") {
		t.Errorf("the patch holds what git refuses:\n%s", text)
	}
}

// git runs outside any repository, without the user's settings.
func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	treetest.NeedProgram(t, "git")
	env := append(os.Environ(), "GIT_CEILING_DIRECTORIES=/", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	if err := run.Run(context.Background(), run.Program{Name: "git", Args: args, Dir: dir, Env: env}); err != nil {
		t.Fatal(err)
	}
}

func TestStatCountsLinesAndBytes(t *testing.T) {
	s := buildBoth(t, tree{"text": "a\nb\nc\n", "bin": "\x00"}, tree{"text": "a\nB\nc\nd\n", "bin": "\x00\x01", "new": "x"})
	old, new := treetest.Open(t, s.old), treetest.Open(t, s.new)
	changes, err := diff.Trees(context.Background(), old, new, diff.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := patch.Stat(context.Background(), &out, old, new, changes, 80); err != nil {
		t.Fatal(err)
	}
	want := " bin  | Bin 1 -> 2 bytes\n new  |     1 +\n text |     3 ++-\n 3 files changed, 3 insertions(+), 1 deletion(-)\n"
	if out.String() != want {
		t.Errorf("stat:\n%s\nwant:\n%s", out.String(), want)
	}
	if added, deleted, err := patch.Lines(context.Background(), old, new, changes); added != 3 || deleted != 1 || err != nil {
		t.Errorf("%d lines added, %d deleted, %v", added, deleted, err)
	}
}
