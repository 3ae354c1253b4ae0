package patch_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/engine/diff/patch"
)

// All changes of a text give the new version, none the old one, and those of some hunks what patch(1) makes of these
// hunks alone. Cost: half a second.
func TestChosenHunksAreThoseOfAPatch(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		var old, new bytes.Buffer
		for i := range 60 {
			line := fmt.Sprintln("line", i)
			old.WriteString(line)
			switch random.IntN(12) {
			case 0:
			case 1:
				fmt.Fprintln(&new, "changed", i)
			case 2:
				new.WriteString(line + "more\n")
			default:
				new.WriteString(line)
			}
		}
		text := patch.CompareTexts(old.Bytes(), new.Bytes())
		if got := text.With(func(int) bool { return true }); !bytes.Equal(got, new.Bytes()) {
			t.Fatalf("all changes: %q", got)
		}
		if got := text.With(func(int) bool { return false }); !bytes.Equal(got, old.Bytes()) {
			t.Fatalf("no changes: %q", got)
		}
		taken := map[int]bool{}
		diff := bytes.NewBufferString("--- a\n+++ a\n")
		for _, h := range text.Hunks() {
			if random.IntN(2) == 0 {
				continue
			}
			if err := text.WriteHunk(diff, h); err != nil {
				t.Fatal(err)
			}
			for n := h.First; n <= h.Last; n++ {
				taken[n] = true
			}
		}
		if len(taken) == 0 {
			continue
		}
		file := filepath.Join(t.TempDir(), "a")
		if err := os.WriteFile(file, old.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		c := exec.Command("patch", "--silent", file)
		c.Stdin = bytes.NewReader(diff.Bytes())
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s\n%s", err, out, diff)
		}
		want, err := os.ReadFile(file)
		if got := text.With(func(n int) bool { return taken[n] }); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("got %q, want %q: %v", got, want, err)
		}
	}
}

// A last line without a newline gets one where a line follows it.
func TestAMissingNewlineJoinsNoLines(t *testing.T) {
	text := patch.CompareTexts([]byte("a\nb"), []byte("a\nb\nc\n"))
	for _, taken := range []bool{true, false} {
		got := string(text.With(func(int) bool { return taken }))
		if want := map[bool]string{true: "a\nb\nc\n", false: "a\nb"}[taken]; got != want {
			t.Errorf("taken %v: %q, want %q", taken, got, want)
		}
	}
}
