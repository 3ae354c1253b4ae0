package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

func TestAPatchAtATerminalIsForAPersonAndInAPipeForPrograms(t *testing.T) {
	t.Setenv("PAGER", "cat")
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
	if screen := p.screen.String(); strings.Contains(screen, "\x1b[2J") || strings.Contains(screen, "\x1b]") {
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

	// A pipe gets every byte: git applies it to the real tree.
	treetest.NeedProgram(t, "git")
	text := b.snapfs("diff", "--patch", "fix").want(0).stdout
	env := append(os.Environ(), "GIT_CEILING_DIRECTORIES=/", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	git := run.Program{Name: "git", Args: []string{"apply", "-"}, Dir: b.workspace, Env: env, Stdin: strings.NewReader(text)}
	if err := run.Run(context.Background(), git); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(b.workspace, "real"))
	if err != nil || string(got) != "really\n\x1b[2Jevil\n" {
		t.Errorf("applied: %q, %v", got, err)
	}
	for line := range strings.Lines(b.snapfs("diff", "fix", "real").want(0).stdout) { // git sets times of its own
		if !strings.HasPrefix(line, "M  time ") && line != "2 modified\n" {
			t.Errorf("fix and the real tree differ: %s", line)
		}
	}
}
