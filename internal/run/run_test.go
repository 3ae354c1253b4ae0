package run

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/errs"
)

func TestErrorQuotesTheProgramsOutput(t *testing.T) {
	out, err := Output(t.Context(), "sh", "-c", "echo partial; echo why >&2; exit 7")
	var e *Error
	if !errors.As(err, &e) || e.Code != 7 || e.Error() != "sh: why" {
		t.Fatalf("err = %#v", err)
	}
	if string(out) != "partial\n" {
		t.Errorf("output = %q", out)
	}
}

// The exit status of another program is not snapfs's.
func TestErrorHasNoExitCodeOfItsOwn(t *testing.T) {
	if code, ok := errs.ExitCode(Run(t.Context(), Program{Name: "sh", Args: []string{"-c", "exit 7"}})); ok {
		t.Errorf("snapfs would end with status %d", code)
	}
}

func TestLongOutputIsCutInErrors(t *testing.T) {
	_, err := Output(t.Context(), "sh", "-c", "yes no | head -n 100000 >&2; exit 1")
	var e *Error
	if !errors.As(err, &e) || strings.Count(e.Stderr, "no") != 5 {
		t.Errorf("err = %v", err)
	}
}

func TestAMissingProgramHasAHintThatInstallsIt(t *testing.T) {
	t.Setenv("PATH", "/nowhere")
	_, err := Output(t.Context(), "fuse-overlayfs-missing")
	if !errors.Is(err, ErrMissing) || !errors.Is(err, errs.ErrNotFound) || len(errs.HintsOf(err)) > 0 || err.Error() != "fuse-overlayfs-missing: not installed" {
		t.Errorf("err = %#v", err)
	}
	if got := errs.HintsOf(missing("mkfs.btrfs", fix("mkfs.btrfs")...)); !slices.Equal(got, []string{"apt-get install btrfs-progs"}) {
		t.Errorf("hints are %q", got)
	}
}

func TestContextKillsTheProgram(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := Output(ctx, "sleep", "60")
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 20*time.Second {
		t.Errorf("err = %v after %v", err, time.Since(start))
	}
}

func TestRunUsesDirEnvAndStreams(t *testing.T) {
	var out, complaints strings.Builder
	p := Program{
		Name: "sh", Args: []string{"-c", "cat; echo $V; pwd; echo hm >&2"}, Env: []string{"V=v"}, Dir: "/",
		Stdin: strings.NewReader("in\n"), Stdout: &out, Stderr: &complaints,
	}
	if err := Run(t.Context(), p); err != nil || out.String() != "in\nv\n/\n" || complaints.String() != "hm\n" {
		t.Errorf("%q, %q, %v", out.String(), complaints.String(), err)
	}
	if os.Geteuid() != 0 {
		return
	}
	out.Reset()
	p = Program{Name: "id", Args: []string{"-u"}, Stdout: &out, As: &IDs{UID: 12345, GID: 12345}}
	if err := Run(t.Context(), p); err != nil || out.String() != "12345\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
