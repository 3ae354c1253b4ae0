package run

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"
)

func TestAFailureSaysWhatTheProgramSaid(t *testing.T) {
	out, err := Output(t.Context(), "sh", "-c", "echo partial; echo why >&2; exit 7")
	var e *Error
	if !errors.As(err, &e) || e.Code != 7 || e.Error() != "sh: why" {
		t.Fatalf("err = %#v", err)
	}
	if string(out) != "partial\n" {
		t.Errorf("output = %q", out)
	}
}

func TestLongComplaintsAreCut(t *testing.T) {
	_, err := Output(t.Context(), "sh", "-c", "yes no | head -n 100000 >&2; exit 1")
	var e *Error
	if !errors.As(err, &e) || strings.Count(e.Stderr, "no") != 5 {
		t.Errorf("err = %v", err)
	}
}

func TestAMissingProgramNamesItsPackage(t *testing.T) {
	t.Setenv("PATH", "/nowhere")
	_, err := Output(t.Context(), "fuse-overlayfs-missing")
	var e *MissingError
	if !errors.As(err, &e) || !errors.Is(err, fs.ErrNotExist) || e.Fix != "" {
		t.Errorf("err = %#v", err)
	}
	if got := fix("mkfs.btrfs"); got != "apt-get install btrfs-progs" {
		t.Errorf("fix = %q", got)
	}
}

func TestAnEndedContextKillsTheProgram(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := Output(ctx, "sleep", "60")
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 20*time.Second {
		t.Errorf("err = %v after %v", err, time.Since(start))
	}
}
