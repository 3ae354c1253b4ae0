package patch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/diff/patch"
	"github.com/snapfs/snapfs/internal/treetest"
)

// visible returns the printable characters and blanks that a terminal would get.
func visible(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c < ' ' || c >= 0x7f {
			fmt.Fprintf(&b, "<%02X>", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func painted(t *testing.T, text string, step int) string {
	t.Helper()
	var out strings.Builder
	p := patch.NewPainter(&out, visible)
	for len(text) > 0 {
		n := min(step, len(text))
		if _, err := p.Write([]byte(text[:n])); err != nil {
			t.Fatal(err)
		}
		text = text[n:]
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// named replaces the painter's escape sequences by words.
func named(s string) string {
	return strings.NewReplacer("\x1b[m", "<end>", "\x1b[1m", "<bold>", "\x1b[31m", "<red>", "\x1b[32m", "<green>", "\x1b[36m", "<cyan>",
		"\x1b[7m", "[", "\x1b[27m", "]").Replace(s)
}

func TestChangedWordsAreMarked(t *testing.T) {
	for name, c := range map[string]struct{ hunk, want string }{
		"one word": {
			"@@ -1,3 +1,3 @@\n same\n-the quick brown fox\n+the slow brown fox\n same",
			"<cyan>@@ -1,3 +1,3 @@<end>\n same\n<red>-the [quick] brown fox<end>\n<green>+the [slow] brown fox<end>\n same\n",
		},
		"words side by side": {
			"@@ -1 +1 @@\n-keep this one two end\n+keep this three four end",
			"<cyan>@@ -1 +1 @@<end>\n<red>-keep this [one two] end<end>\n<green>+keep this [three four] end<end>\n",
		},
		"nothing in common":  {"@@ -1 +1 @@\n-abc def\n+ghi jkl", "<cyan>@@ -1 +1 @@<end>\n<red>-abc def<end>\n<green>+ghi jkl<end>\n"},
		"nothing to compare": {"@@ -1 +0,0 @@\n-abc def", "<cyan>@@ -1 +0,0 @@<end>\n<red>-abc def<end>\n"},
		"over lines": {
			"@@ -1 +1,2 @@\n-call(alpha, beta)\n+call(alpha,\n+  beta, more)",
			"<cyan>@@ -1 +1,2 @@<end>\n<red>-call(alpha,[ beta)]<end>\n<green>+call(alpha,<end>\n<green>+  beta, more)<end>\n",
		},
		"no newline at the end": {
			"@@ -1 +1 @@\n-some text\n\\ No newline at end of file\n+some texts\n\\ No newline at end of file\ndiff --git a/x b/x",
			"<cyan>@@ -1 +1 @@<end>\n<red>-some [text]<end>\n\\ No newline at end of file\n<green>+some [texts]<end>\n\\ No newline at end of file\n<bold>diff --git a/x b/x<end>\n",
		},
		"a line like a header": {
			"@@ -1,2 +1 @@\n--- a/x y z\n-@@ -1 +1 @@\n+++ b/x y z\n--- a/f\n+++ b/f",
			"<cyan>@@ -1,2 +1 @@<end>\n<red>-[-]- [a]/x y z<end>\n<red>-[@@ -1 +1 @@]<end>\n<green>+[+]+ [b]/x y z<end>\n<bold>--- a/f<end>\n<bold>+++ b/f<end>\n",
		},
		"what a terminal would act on": {
			"@@ -1 +1 @@\n-abc \x1b[2J\xe2 x\n+abc \x1b]0;t\x07 x\n rest\r",
			"<cyan>@@ -1 +1 @@<end>\n<red>-abc <1B>[2J<E2> x<end>\n<green>+abc <1B>]0;t<07> x<end>\n rest<0D>\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, step := range []int{1, 7, 1 << 20} {
				got := named(painted(t, c.hunk+"\n", step))
				if name == "what a terminal would act on" || name == "a line like a header" {
					// the marked words do not matter here
					strip := strings.NewReplacer("[", "", "]", "")
					got, c.want = strip.Replace(got), strip.Replace(c.want)
				}
				if got != c.want {
					t.Errorf("in steps of %d:\n%s\nwant:\n%s", step, got, c.want)
				}
			}
		})
	}
}

// Without its colours, a painted patch is the escaped patch, line by line.
func TestPaintingChangesNothingButColours(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 11))
		old, new := tree{}, tree{}
		for i := range 10 {
			old[fmt.Sprint("f", i)], new[fmt.Sprint("f", i)] = randomText(r)+strconv.Itoa(r.IntN(9))+"\xe2", randomText(r)+"\x1b[7m"+strconv.Itoa(r.IntN(9))
		}
		s := buildBoth(t, old, new)
		text := string(s.write(t))
		var want strings.Builder
		for line := range strings.Lines(text) {
			want.WriteString(visible(strings.TrimSuffix(line, "\n")) + "\n")
		}
		got := painted(t, text, 1+r.IntN(5000))
		for _, code := range []string{"\x1b[m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[7m", "\x1b[27m"} {
			got = strings.ReplaceAll(got, code, "")
		}
		if got != want.String() {
			t.Fatalf("seed %d:\n%s\nwant:\n%s", seed, got, want.String())
		}
	}
}

func TestPaintingIsBounded(t *testing.T) {
	long := strings.Repeat("word ", 1<<20)
	got := painted(t, "@@ -1 +1 @@\n-"+long+"\n+"+long+"x\n", 1<<20)
	if strings.Contains(got, "\x1b[7m") || !strings.Contains(got, long+"x\x1b[m") {
		t.Errorf("%d bytes, begun with %.60q", len(got), got)
	}
	broken := errors.New("the terminal has gone")
	p := patch.NewPainter(writer(func([]byte) (int, error) { return 0, broken }), visible)
	if _, err := p.Write([]byte("line\n")); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func TestABarePatchHasNothingForTheApplier(t *testing.T) {
	s := buildBoth(t, tree{"f": "1\n"}, tree{"f": "2\n"})
	old, new := treetest.Open(t, s.old), treetest.Open(t, s.new)
	changes, err := diff.Trees(context.Background(), old, new, diff.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := patch.Write(context.Background(), &out, old, new, changes, patch.Options{}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "#snapfs") || !strings.Contains(out.String(), "+2\n") {
		t.Errorf("got\n%s", out.String())
	}
}
