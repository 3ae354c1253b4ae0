package merge_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/merge"
	"github.com/snapfs/snapfs/internal/treetest"
)

var names = merge.Names{Mine: "sandbox", Base: "base", Real: "real"}

// A git runs git merge-file.
type git struct {
	t   testing.TB
	dir string
}

func needGit(t testing.TB) *git {
	t.Helper()
	treetest.NeedProgram(t, "git")
	return &git{t, t.TempDir()}
}

// merge returns git's output and its number of conflicts.
func (g *git) merge(base, mine, real []byte, options ...string) (merged []byte, conflicts int) {
	g.t.Helper()
	for name, data := range map[string][]byte{"base": base, "mine": mine, "real": real} {
		must(g.t, os.WriteFile(filepath.Join(g.dir, name), data, 0o600))
	}
	args := append([]string{"merge-file", "-p", "-L", names.Mine, "-L", names.Base, "-L", names.Real}, options...)
	cmd := exec.Command("git", append(args, "mine", "base", "real")...)
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() < 128 {
		return out, exit.ExitCode()
	}
	if err != nil {
		g.t.Fatalf("git merge-file: %v: %s", err, stderr.String())
	}
	return out, 0
}

// agree fails the test if Text and git disagree, and reports whether the merge was clean.
func (g *git) agree(what string, base, mine, real []byte) (clean bool) {
	g.t.Helper()
	got, conflicts := merge.Text(base, mine, real, names)
	want, n := g.merge(base, mine, real)
	if n == 0 {
		if conflicts != 0 || !bytes.Equal(got, want) {
			g.t.Fatalf("%s\nbase %q\nmine %q\nreal %q\nmerged %q with %d conflicts\ngit    %q", what, base, mine, real, got, conflicts, want)
		}
		return true
	}
	if conflicts == 0 {
		g.t.Fatalf("%s\nbase %q\nmine %q\nreal %q\nmerged %q\ngit has %d conflicts: %q", what, base, mine, real, got, n, want)
	}
	want, n = g.merge(base, mine, real, "--diff3")
	if n == conflicts && !bytes.Equal(got, want) || n < conflicts {
		g.t.Fatalf("%s\nbase %q\nmine %q\nreal %q\nmarked %q\ngit    %q", what, base, mine, real, got, want)
	}
	return false
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// someLines returns up to n lines from an alphabet of n. The fewer lines, the more ways to
// pair them.
func someLines(r *rand.Rand, n, alphabet int) []string {
	lines := make([]string, r.IntN(n+1))
	for i := range lines {
		lines[i] = fmt.Sprintf("%c", 'a'+r.IntN(alphabet))
	}
	return lines
}

// edit inserts, deletes, replaces, moves and repeats random runs of lines.
func edit(r *rand.Rand, lines []string, edits, alphabet int) []string {
	for range edits {
		at := r.IntN(len(lines) + 1)
		end := min(len(lines), at+r.IntN(4))
		in := someLines(r, 3, alphabet)
		switch r.IntN(8) {
		case 0:
			in = nil
		case 1:
			end = at
		case 2:
			in = append([]string{}, lines[at:end]...)
			end = at
		}
		lines = append(append(append([]string{}, lines[:at]...), in...), lines[end:]...)
	}
	return lines
}

func text(r *rand.Rand, lines []string) []byte {
	end := "\n"
	if r.IntN(8) == 0 {
		end = "\r\n"
	}
	s := strings.Join(lines, end)
	if len(lines) > 0 && r.IntN(6) > 0 {
		s += end
	}
	return []byte(s)
}

// fuzzRange returns the first seed and the number of cases of a comparison with git: from the
// variable "FIRST COUNT" of make fuzz-merge, or else the test's budget from seed 0.
func fuzzRange(t *testing.T, variable string, few, many int) (first uint64, count int) {
	t.Helper()
	if s := os.Getenv(variable); s != "" {
		if _, err := fmt.Sscan(s, &first, &count); err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
		return first, count
	}
	return 0, treetest.Budget(t, few, many)
}

// A failure prints its seed.
func TestTextAgreesWithGitOnRandomEdits(t *testing.T) {
	g := needGit(t)
	clean := 0
	treetest.OncePerRun(t)
	first, cases := fuzzRange(t, "SNAPFS_FUZZ_TEXTS", 200, 10_000)
	for seed := first; seed < first+uint64(cases); seed++ {
		r := rand.New(rand.NewPCG(seed, 3))
		alphabet := []int{2, 3, 5, 10, 26, 60}[r.IntN(6)]
		base := someLines(r, []int{3, 10, 40, 200}[r.IntN(4)], alphabet)
		edits := 1 + r.IntN(1+len(base)/8)
		mine, real := edit(r, base, edits, alphabet), edit(r, base, edits, alphabet)
		if r.IntN(10) == 0 { // the same edit on both sides
			mine, real = edit(r, mine, 1, alphabet), edit(r, mine, 1, alphabet)
		}
		if g.agree(fmt.Sprintf("seed %d", seed), text(r, base), text(r, mine), text(r, real)) {
			clean++
		}
	}
	if clean < cases/10 || clean > cases*9/10 {
		t.Errorf("%d of %d merges were clean: the cases are too much alike", clean, cases)
	}
}
