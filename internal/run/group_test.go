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

// shell is a program that says in which process group it is.
func shell(text string) run.Program { return run.Program{Name: "/bin/sh", Args: []string{"-c", text}} }

// alive waits until a process is as expected: there, or not.
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

// TestAGroupEndsWithAllThatItStarted: at its time limit, though some of it will
// not listen; and when it fails.
func TestAGroupEndsWithAllThatItStarted(t *testing.T) {
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
			err := run.Group(ctx, shell(strings.ReplaceAll(text, "PID", pid)), false, nil)
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

// TestWhatAGroupKeepsGoesOn, until it is ended by its mark; a stranger in a group
// of that number is left alone.
func TestWhatAGroupKeepsGoesOn(t *testing.T) {
	pid := filepath.Join(treetest.Dir(t), "pid")
	p := shell("sh -c 'echo $$ > " + pid + "; sleep 100' & while ! test -s " + pid + "; do sleep 0.01; done")
	p.Env = append(os.Environ(), "SNAPFS_TEST_GROUP=mine")
	group := 0
	if err := run.Group(t.Context(), p, true, func(g int) error { group = g; return nil }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-group, syscall.SIGKILL) })
	if err := run.EndGroup(group, "SNAPFS_TEST_GROUP=min"); err != nil {
		t.Error(err)
	}
	alive(t, pid, true)
	if err := run.EndGroup(group, "SNAPFS_TEST_GROUP=mine"); err != nil {
		t.Error(err)
	}
	alive(t, pid, false)
}

// TestAGroupThatCannotBeNotedIsEnded: nothing runs that nobody would find.
func TestAGroupThatCannotBeNotedIsEnded(t *testing.T) {
	group, full := 0, errors.New("no room to note it")
	err := run.Group(t.Context(), shell("sleep 100"), true, func(g int) error { group = g; return full })
	if !errors.Is(err, full) {
		t.Error(err)
	}
	// What it had started is init's child now, and there until init has looked.
	for tries := 0; syscall.Kill(-group, 0) != syscall.ESRCH; tries++ {
		if tries == 200 {
			t.Fatalf("group %d is still there", group)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
