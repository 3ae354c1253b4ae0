package patch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// patches checks that patch(1) turns the old tree into the new one, and back.
func (s sides) patches(t *testing.T, text []byte, old, new tree) {
	t.Helper()
	treetest.NeedProgram(t, "patch")
	file := filepath.Join(s.dir, "patch")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir  string
		args []string
		want tree
	}{{s.old, nil, new}, {s.new, []string{"-R"}, old}} {
		args := append([]string{"-p1", "--batch", "--fuzz=0", "--no-backup-if-mismatch", "-i", file}, c.args...)
		if err := run.Run(context.Background(), run.Program{Name: "patch", Args: args, Dir: c.dir}); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if got := read(t, c.dir); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("after patch %v:\n%q\nwant\n%q\nby\n%s", args, got, c.want, text)
		}
	}
}

func TestPatchTurnsOneTreeIntoTheOther(t *testing.T) {
	text := strings.Repeat("one\ntwo\nthree\n", 20)
	old := tree{
		"edit": "a\nb\nc\nd\ne\nf\ng\nh\n", "noeol": "x", "eol": "x\n", "gone": "bye\n", "filled": "", "exec": "!run\n", "plain": "run\n",
		"dir/with space": "1\n", "\xff\xfe": "1\n", "latin": "caf\xe9\n", "moved": text, "same": "moved as it is\n", "dir/gone": "bye\n", "dots": "--- a/x\n+++ b/x\n",
	}
	new := tree{
		"edit": "a\nb\nC\nd\ne\nf\ng\nh\ni\n", "noeol": "y", "eol": "x", "filled": "now\n", "exec": "run\n", "plain": "!ran\n", "new/deep/er": "\n",
		"dir/with space": "2\n", "\xff\xfe": "2\n", "latin": "caf\xe8\n", "went": "zero\n" + text, "other": "moved as it is\n", "came": "hello\n", "dots": "-- a/x\n++ b/x\n",
	}
	s := buildBoth(t, old, new)
	s.patches(t, s.write(t), old, new)
}

func TestPatchTurnsOneTreeIntoTheOtherOnRandomText(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 9))
		old, new := tree{}, tree{}
		for i := range 12 {
			name := fmt.Sprint("f", i)
			old[name], new[name] = strings.ReplaceAll(randomText(r), "\x00", "0"), strings.ReplaceAll(randomText(r), "\x00", "0")
		}
		s := buildBoth(t, old, new)
		s.patches(t, s.write(t), old, new)
	}
}
