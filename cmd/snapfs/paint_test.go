package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/diff/patch"
)

func TestAPatchAtATerminalIsForAPersonAndInAPipeForPrograms(t *testing.T) {
	b := newDesk(t)
	b.snapfs("new", "fix").want(0)
	b.snapfs("exec", "fix", "--", "sh", "-c", `printf 'really\n\033[2Jevil\n' > real; printf x > "$(printf 'bad\033]0;t\007')"`).want(0)
	const marked = "\x1b[32m+really\x1b[m\r\n\x1b[32m+^[[2Jevil\x1b[m\r\n"
	p := sit(t, b, "diff", "--patch", "fix")
	p.sees("\x1b[1mdiff --git a/real b/real\x1b[m\r\n")
	p.sees("\x1b[31m-real\x1b[m\r\n")
	p.sees(marked)
	if st := p.leaves(); st != 0 {
		t.Errorf("status %d", st)
	}
	<-p.closed
	if screen := p.screen.String(); strings.Contains(screen, "\x1b[2J") || strings.Contains(screen, "\x1b]") || strings.Contains(screen, "#snapfs") {
		t.Errorf("the terminal got %q", screen)
	}

	t.Setenv("NO_COLOR", "1") //nolint:misspell // the variable's name
	p = sit(t, b, "diff", "--patch", "fix")
	p.sees("-real\r\n+really\r\n+^[[2Jevil\r\n")
	p.leaves()
	<-p.closed
	if screen := p.screen.String(); strings.Contains(screen, "\x1b") {
		t.Errorf("without colours the terminal got %q", screen)
	}

	// The pipe's is applied, to a copy of what is real.
	if bare := b.snapfs("diff", "--patch", "fix").want(0).stdout; strings.Contains(bare, "#snapfs") {
		t.Errorf("without being asked for, the patch carries what only snapfs reads:\n%s", bare)
	}
	text := b.snapfs("diff", "--full", "fix").want(0).stdout
	root, err := os.Open(b.workspace)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := patch.Apply(context.Background(), root, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(b.workspace, "real"))
	if err != nil || string(got) != "really\n\x1b[2Jevil\n" {
		t.Errorf("applied: %q, %v", got, err)
	}
	if out := b.snapfs("diff", "fix", "real").want(0).stdout; !strings.HasPrefix(out, "nothing changed") {
		t.Errorf("fix and the real tree differ:\n%s", out)
	}
}
