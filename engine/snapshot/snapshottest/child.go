//go:build linux

package snapshottest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

const childEnv = "SNAPFS_SNAPSHOTTEST_CHILD"

// A task is the work of a child process of the conformance tests: it calls one method of the backend, Verb,
// for each of IDs. If KillAt is not zero, the process kills itself at the fault point of that number, a place
// before a change on disk.
type task struct {
	Place  snapshot.Place
	Verb   string
	IDs    []string
	KillAt int64
}

// beChild does nothing in the test process itself. In a process that workbench.child has started, it calls
// the methods of the backend that the child's task lists, and ends the process.
func beChild(s Subject) {
	text := os.Getenv(childEnv)
	if text == "" {
		return
	}
	if err := doTask(s, text); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func doTask(s Subject, text string) error {
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return err
	}
	ctx := context.Background()
	b, err := s.Driver.Open(ctx, t.Place)
	if err != nil {
		return err
	}
	if t.KillAt > 0 {
		ctx = treetest.WithFaults(ctx, killAt(t.KillAt))
	}
	for _, id := range t.IDs {
		if err := verbs()[t.Verb].do(ctx, b, t.Place.Tree, id); err != nil {
			return err
		}
	}
	return nil
}

func killAt(n int64) fault.Plan {
	var count atomic.Int64
	return func(string) error {
		if count.Add(1) == n {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	}
}

// child runs the task t, calls of a method of the backend, in another process, and reports whether that
// process was killed. The error of a failed task contains its output.
func (x *workbench) child(t task) (killed bool, err error) {
	t.Place = x.place
	text, err := json.Marshal(t)
	if err != nil {
		return false, err
	}
	test, _, _ := strings.Cut(x.Name(), "/")
	err = run.Run(x.Context(), run.Program{
		Name: "/proc/self/exe",
		Args: []string{"-test.run=^" + regexp.QuoteMeta(test) + "$"},
		Env:  append(os.Environ(), childEnv+"="+string(text)),
	})
	var e *run.Error
	if errors.As(err, &e) && e.Code == -1 {
		return true, nil
	}
	return false, err
}
