package run_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// shell is a program that prints its process group.
func shell(text string) run.Program { return run.Program{Name: "/bin/sh", Args: []string{"-c", text}} }

// alive waits until a process exists, or does not.
func alive(t *testing.T, file string, want bool) {
	t.Helper()
	pid := 0
	for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(5 * time.Millisecond) {
		if pid == 0 {
			text, _ := os.ReadFile(file)
			pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
			continue
		}
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if there := err == nil && !strings.Contains(string(stat), ") Z "); there == want {
			return
		}
	}
	t.Errorf("process %d of %s: want it alive: %v", pid, file, want)
}

// TestGroupEndsAllDescendants at its time limit, though some ignore signals; and when it fails.
func TestGroupEndsAllDescendants(t *testing.T) {
	for name, text := range map[string]string{
		"limit":    "trap '' TERM; (trap '' TERM; echo $$ >/dev/null; exec sh -c 'echo $$ > PID; sleep 100') & sleep 100",
		"failure":  "sh -c 'echo $$ > PID; sleep 100' & while ! test -s PID; do sleep 0.01; done; exit 3",
		"leftover": "sh -c 'echo $$ > PID; sleep 100' & while ! test -s PID; do sleep 0.01; done",
	} {
		t.Run(name, func(t *testing.T) {
			pid := filepath.Join(treetest.Dir(t), "pid")
			ctx := t.Context()
			if name == "limit" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
			}
			err := run.Group(ctx, shell(strings.ReplaceAll(text, "PID", pid)), false)
			var e *run.Error
			switch {
			case name == "leftover" && err != nil, name != "leftover" && !errors.As(err, &e):
				t.Error(err)
			case name == "limit" && !errors.Is(err, context.DeadlineExceeded), name == "failure" && e.Code != 3:
				t.Errorf("%#v", e)
			}
			alive(t, pid, false)
		})
	}
}

// TestEndMarkedEndsDescendants that Group left running, if all marks match and they are in the same session.
func TestEndMarkedEndsDescendants(t *testing.T) {
	dir := treetest.Dir(t)
	pid, own := filepath.Join(dir, "pid"), filepath.Join(dir, "own")
	leave := func(how, file string) string {
		return how + " sh -c 'echo $$ > " + file + "; sleep 100' & while ! test -s " + file + "; do sleep 0.01; done;"
	}
	p := shell(leave("", pid) + leave("setsid", own))
	p.Env = append(os.Environ(), "SNAPFS_TEST_GROUP=mine", "SNAPFS_TEST_WHEN=now")
	if err := run.Group(t.Context(), p, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		text, _ := os.ReadFile(own)
		session, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		if err := syscall.Kill(-session, syscall.SIGKILL); session == 0 || err != nil {
			t.Error("ending", own, err)
		}
	})
	end := func(marks ...string) {
		if err := run.EndMarked(marks...); err != nil {
			t.Error(err)
		}
	}
	end("SNAPFS_TEST_GROUP=min", "SNAPFS_TEST_WHEN=now")
	end("SNAPFS_TEST_GROUP=mine", "SNAPFS_TEST_WHEN=then")
	alive(t, pid, true)
	end("SNAPFS_TEST_GROUP=mine", "SNAPFS_TEST_WHEN=now")
	alive(t, pid, false)
	alive(t, own, true)
}
