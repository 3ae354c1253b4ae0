//go:build linux

package agenthook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/backends/all"
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/keypoint"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate"
)

// TestMain makes the test binary the supervisor of its sandboxes.
func TestMain(m *testing.M) {
	if len(os.Args) != 4 || os.Args[1] != "keeper" {
		os.Exit(m.Run())
	}
	e, err := openEngine(context.Background(), os.Args[2])
	if err == nil {
		err = e.Supervise.Supervise(context.Background(), os.Args[3])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func openEngine(ctx context.Context, state string) (*engine.Engine, error) {
	return engine.Open(ctx, engine.Config{State: state, Drivers: all.Drivers, Supervisor: []string{"/proc/self/exe", "keeper"}})
}

// TestReapRemovesOldPreviews and leaves those that a person may still see.
func TestReapRemovesOldPreviews(t *testing.T) {
	c := newClones(t)
	dir := filepath.Join(c.StateDir(), previewDir)
	old, fresh := filepath.Join(dir, "old"), filepath.Join(dir, "fresh")
	c.must(writePreview(old, "D  file  x"))
	c.must(writePreview(fresh, "D  file  y"))
	past := time.Now().Add(-previewAge - time.Minute)
	c.must(os.Chtimes(old, past, past))
	_, err := Reap(t.Context(), c.Engine)
	c.must(err)
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an old preview stays: %v", err)
	}
	if text, err := readPreview(fresh); err != nil || text != "D  file  y" {
		t.Errorf("a new preview: %q, %v", text, err)
	}
}

// clones are sandboxes of a small workspace, each with a lease without a view.
type clones struct {
	*engine.Engine
	t    *testing.T
	work string
}

func newClones(t *testing.T) *clones {
	t.Helper()
	treetest.NeedRoot(t)
	dir := treetest.Dir(t)
	c := &clones{t: t, work: filepath.Join(dir, "work")}
	c.must(os.Mkdir(c.work, 0o755))
	e, err := openEngine(t.Context(), filepath.Join(dir, "state"))
	c.must(err)
	c.Engine = e
	return c
}

func (c *clones) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// clone makes a sandbox as an agent has it before its first call.
func (c *clones) clone(name string) *Lease {
	c.t.Helper()
	_, err := c.New(c.t.Context(), hostfs.Request{Name: name, Workspace: c.work, Policy: catalog.Policy{Network: "none"}})
	c.must(err)
	c.t.Cleanup(func() {
		if err := c.Remove(context.Background(), name); err != nil && !errors.Is(err, errs.ErrNotFound) {
			c.t.Error(err)
		}
	})
	l := &Lease{Sandbox: name, Workspace: c.work, View: filepath.Join(c.work, "none", "of", name)}
	c.must(l.save(c.Engine))
	c.must(checkpoint(c.t.Context(), c.Engine, l, Checkpoint{}))
	return l
}

// start starts a shell in a sandbox and returns a function that awaits its end.
func (c *clones) start(name, script string) (wait func()) {
	c.t.Helper()
	p, err := c.Supervise.Exec(c.t.Context(), name, isolate.Command{Args: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: c.work})
	c.must(err)
	return func() {
		c.t.Helper()
		st, err := p.Wait(c.t.Context())
		if err = errors.Join(err, p.Close()); err != nil || st.ExitCode() != 0 {
			c.t.Fatalf("%s: %v, %v", script, st, err)
		}
	}
}

// call is a call of a tool, with the checkpoint after it.
func (c *clones) call(l *Lease, id, script string) {
	c.t.Helper()
	c.start(l.Sandbox, script)()
	c.must(checkpoint(c.t.Context(), c.Engine, l, Checkpoint{Call: id, Turn: "t"}))
}

// TestOnlyASandboxWithoutAnyChangeIsRemoved: after calls that changed nothing it goes; the changes of a call that was
// undone keep it. Cost: three starts of a sandbox, half a second.
func TestOnlyASandboxWithoutAnyChangeIsRemoved(t *testing.T) {
	c, ctx := newClones(t), t.Context()
	read := c.clone("read")
	c.call(read, "one", "true")
	c.call(read, "two", "ls")
	undone := c.clone("undone")
	c.call(undone, "one", "echo x > made")
	to, err := Undo(ctx, c.Engine, "undone", LastTurn)
	c.must(err)
	if n, err := changes(ctx, c.Engine, "undone"); err != nil || n != 0 || to != firstCheckpoint {
		t.Fatalf("after the undo to %s: %d changes, %v", to, n, err)
	}
	for _, l := range []*Lease{read, undone} {
		c.must(release(ctx, c.Engine, l))
	}
	if _, err := c.Catalog().Get("read"); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("the sandbox without a change stays: %v", err)
	}
	rec, err := c.Catalog().Get("undone")
	c.must(err)
	if _, ok := rec.Snapshot("one"); !ok {
		t.Error("the undone call has lost its snapshot")
	}
	if l, err := readLease(c.StateDir(), "undone"); err != nil || !l.Ended {
		t.Errorf("its lease: %+v, %v", l, err)
	}
}

// TestASandboxInWhichACommandRunsIsNotRemoved: the command goes on, and what it writes later is there. Cost: the start
// of a sandbox, a third of a second.
func TestASandboxInWhichACommandRunsIsNotRemoved(t *testing.T) {
	c := newClones(t)
	c.clone("busy")
	wait := c.start("busy", "while ! test -e /tmp/go; do sleep 0.01; done; echo late > late")
	if removed, err := removeUnchanged(t.Context(), c.Engine, "busy", 20*time.Millisecond); removed || !errors.Is(err, errs.ErrBusy) {
		t.Fatalf("removed: %v, %v", removed, err)
	}
	c.start("busy", "touch /tmp/go")()
	wait()
	if n, err := changes(t.Context(), c.Engine, "busy"); err != nil || n == 0 {
		t.Errorf("%d changes, %v", n, err)
	}
}

// TestASlowSnapshotIsTakenWithoutItsSupervisor: the snapshot after one that took long is also taken when the supervisor is
// killed as soon as it has promised it. Cost: three seconds, for the many files that make the first one slow.
func TestASlowSnapshotIsTakenWithoutItsSupervisor(t *testing.T) {
	c := newClones(t)
	l := c.clone("slow")
	p, err := c.Supervise.Exec(t.Context(), "slow", isolate.Command{
		Args: []string{"/bin/sh", "-c", "mkdir many && cd many && seq 20000 | xargs touch && exec sleep 1000"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: c.work,
	})
	c.must(err)
	defer p.Close()
	c.start("slow", "while ! test -e many/20000; do sleep 0.01; done")()
	c.call(l, "one", "true")
	killed := false
	err = l.snapshot(t.Context(), c.Engine, "two", func() error {
		info, err := c.Show(context.Background(), "slow")
		if err != nil || info.Supervisor == nil {
			t.Fatalf("no supervisor: %v", err)
		}
		killed = true
		return syscall.Kill(info.Supervisor.PID, syscall.SIGKILL)
	})
	c.must(err)
	if rec, err := c.Catalog().Get("slow"); err != nil || !killed || keypoint.IsPromised(c.StateDir(), "slow") {
		t.Errorf("the snapshot is only promised: %v", err)
	} else if _, ok := rec.Snapshot("two"); !ok {
		t.Errorf("the snapshot is lost: %+v", rec.Snapshots)
	}
}

// TestAViewMadeMeanwhileIsNotStray: a lease is saved before its view is made, at any moment of a search.
func TestAViewMadeMeanwhileIsNotStray(t *testing.T) {
	dir := t.TempDir()
	view := func(name string) {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	view("gone")
	view("leased")
	leases := []*Lease{{View: filepath.Join(dir, "leased")}}
	stray, err := strayViews(dir, func() []*Lease {
		view("meanwhile") // its lease is not among those that were just read
		return leases
	})
	if want := []string{filepath.Join(dir, "gone")}; err != nil || !slices.Equal(stray, want) {
		t.Errorf("stray: %v, %v; want %v", stray, err, want)
	}
	if stray, err := strayViews(filepath.Join(dir, "none"), nil); err != nil || len(stray) > 0 {
		t.Errorf("of no directory: %v, %v", stray, err)
	}
}
