package engine_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/engine/reconcile"
)

// Where the person and a sandbox have made the same change, a promotion finds them agreed. What the person does there
// later is no conflict with that change, and stays.
func TestWhatBothSidesChangedAlikeIsTheBaseOfWhatFollows(t *testing.T) {
	for name, c := range map[string]struct{ inside, outside, later string }{
		"removed, made again":       {"rm f", "rm f", "echo later > f"},
		"replaced, edited":          {"echo new > f", "echo new > f", "echo later > f"},
		"replaced, removed":         {"echo new > f", "echo new > f", "rm f"},
		"made, edited":              {"echo new > n", "echo new > n", "echo later > n"},
		"made, removed":             {"echo new > n", "echo new > n", "rm n"},
		"directory removed, made":   {"rm -r d", "rm -r d", "mkdir d; echo later > d/f"},
		"renamed, edited":           {"mv f g", "mv f g", "echo later > g"},
		"mode changed, and changed": {"chmod 600 f", "chmod 600 f", "chmod 640 f"},
	} {
		for place, elsewhere := range map[string]string{"": "", "with another change": "echo other > other"} {
			t.Run(name+" "+place, func(t *testing.T) {
				asBoth(t, func(t *testing.T, b *bench) {
					b.write("f", "old\n")
					if err := os.Mkdir(filepath.Join(b.workspace, "d"), 0o755); err != nil {
						t.Fatal(err)
					}
					b.write("d/f", "old\n")
					tick()
					b.new("s")
					b.in("s", c.inside+"\n"+elsewhere)
					b.outside(c.outside)
					if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
						t.Fatal(err)
					}
					b.outside(c.later)
					want := b.outside("ls -l; ls d; cat f n g d/f 2>&1 || true")
					if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
						t.Error(err)
					}
					if got := b.outside("ls -l; ls d; cat f n g d/f 2>&1 || true"); got != want {
						t.Errorf("the workspace is\n%s\nwant\n%s", got, want)
					}
				})
			})
		}
	}
}

// outside runs a script of the person in the workspace, and returns its output.
func (b *bench) outside(script string) string {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), "/bin/sh", "-c", script)
	cmd.Dir = b.workspace
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s: %v: %s", script, err, out)
	}
	tick() // what follows is later, by the clock of files
	return string(out)
}
