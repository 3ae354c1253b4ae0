package engine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/keypoint"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/timeline"
)

// A gate makes the supervisor of the sandbox s wait in each snapshot of the running sandbox, before it copies anything,
// as long as the gate is closed.
type gate struct {
	*bench
	path  string
	write *os.File // what the process in the sandbox reads
}

// gated makes the sandbox s, with a snapshot k1, and a process in it that appends each line that it gets to the file g.
// Then it closes the gate.
func (b *bench) gated() *gate {
	b.t.Helper()
	g := &gate{bench: b, path: filepath.Join(filepath.Dir(b.state), "gate")}
	b.t.Setenv(holdEnv, "note reserved numbers="+g.path)
	b.withKeyPoints("s", catalog.KeyPoints{At: []string{catalog.AtExec}})
	stdin, write, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { write.Close() })
	command := b.command("while read line; do echo $line >> g; done")
	command.Stdin, g.write = stdin, write
	p, err := b.Supervise.Exec(b.t.Context(), "s", command)
	stdin.Close()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { p.Close() })
	b.in("s", "echo 1 > f")
	b.wantPoints("s", "before the gate is closed", "k1 after exec (exit 0): 'echo 1 > f'")
	if err := os.WriteFile(g.path, nil, 0o644); err != nil {
		b.t.Fatal(err)
	}
	opened := time.AfterFunc(time.Minute, func() { _ = os.Remove(g.path) }) // for a test that waits in vain
	b.t.Cleanup(func() { opened.Stop(); _ = os.Remove(g.path) })
	return g
}

// open opens the gate.
func (g *gate) open() {
	g.t.Helper()
	if err := os.Remove(g.path); err != nil {
		g.t.Fatal(err)
	}
}

// writes sends a line to the process in the sandbox.
func (g *gate) writes() {
	g.t.Helper()
	if _, err := g.write.WriteString("later\n"); err != nil {
		g.t.Fatal(err)
	}
}

// written waits until the process in the sandbox has written the line.
func (g *gate) written() {
	g.t.Helper()
	for end := time.Now().Add(time.Minute); g.in("s", "cat g 2>/dev/null || true") != "later\n"; {
		if time.Now().After(end) {
			g.t.Fatal("the process in the sandbox has not continued")
		}
	}
}

// killSupervisor kills the supervisor of s, and with it every process of the sandbox.
func (g *gate) killSupervisor() {
	g.t.Helper()
	keeper := g.keeperOf("s")
	if err := syscall.Kill(keeper.PID, syscall.SIGKILL); err != nil {
		g.t.Fatal(err)
	}
	untilDead(g.t, keeper)
}

// shows wants that a snapshot of s is the newest one, and which files it changed.
func (g *gate) shows(name, changed string) {
	g.t.Helper()
	g.points("s")
	tl, err := timeline.Of(g.t.Context(), g.Engine, "s")
	if err != nil {
		g.t.Fatal(err)
	}
	i := slices.IndexFunc(tl.Entries, func(e timeline.Entry) bool { return e.Name == name })
	if i < 0 {
		g.t.Fatalf("there is no snapshot %s: %+v", name, tl.Entries)
	}
	if got := strings.Join(tl.Entries[i].Changed.Paths, " "); got != changed {
		g.t.Errorf("the snapshot %s changed %q, not %q", name, got, changed)
	}
}

// TestACommandDoesNotWaitForItsSnapshot: the status of a command comes before the snapshot after it, and another process
// of the sandbox stands still until the snapshot is taken. Cost: a second.
func TestACommandDoesNotWaitForItsSnapshot(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		g := b.gated()
		b.in("s", "echo 2 > f")
		g.writes()
		if rec, err := b.Catalog().Get("s"); err != nil || len(rec.Snapshots) != 1 || !b.KeyPoints.HasPostponed("s") {
			t.Errorf("the snapshot was taken although the supervisor waits: %v", err)
		}
		g.open()
		g.shows("k2", "f")
		g.written()
	})
}

// TestASnapshotOutlivesItsSupervisor: the supervisor is killed after the status of a command and before the snapshot
// after it. The next command takes that snapshot. Cost: a second.
func TestASnapshotOutlivesItsSupervisor(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		g := b.gated()
		b.in("s", "echo 2 > f")
		g.killSupervisor()
		g.shows("k2", "f")
		b.wantPoints("s", "after the supervisor was killed", "k1 after exec (exit 0): 'echo 1 > f'", "k2 after exec (exit 0): 'echo 2 > f'")
		if _, err := b.Collect(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestASnapshotBesideAViewComesFirst: a program of the host may write through the view of a sandbox as soon as it has the
// status of a command, and no freeze of the sandbox stops that program. Cost: a second.
func TestASnapshotBesideAViewComesFirst(t *testing.T) {
	asRoot(t, func(t *testing.T, b *bench) {
		g := b.gated()
		if err := os.WriteFile(filepath.Join(b.Catalog().Path("s"), catalog.ViewSocket), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		p, err := b.Supervise.Exec(t.Context(), "s", b.command("echo 2 > f"))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if _, err := p.Wait(ctx); !errors.Is(err, errs.ErrInterrupted) {
			t.Errorf("the command did not wait for its snapshot: %v", err)
		}
		g.open()
		if _, err := p.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if rec, err := b.Catalog().Get("s"); err != nil || len(rec.Snapshots) != 2 {
			t.Errorf("the snapshot comes after the status: %v", err)
		}
	})
}

// TestACheckpointIsHandedOver: a checkpoint of a running sandbox is promised at once and shows the files from then. A
// second one of the same name is an error. Cost: a second.
func TestACheckpointIsHandedOver(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		g := b.gated()
		b.in("s", "true")
		taken := b.checkpointed("c1")
		g.writes()
		g.open()
		taken()
		if h, err := b.Catalog().TryLock("s"); err != nil {
			t.Errorf("the sandbox is locked although the checkpoint is taken: %v", err)
		} else {
			h.Release()
		}
		g.shows("c1", "")
		if keypoint.IsPromised(b.state, "s") {
			t.Error("the checkpoint is promised after it has been taken")
		}
		if _, err := b.Checkpoint(t.Context(), "s", "c1", nil); !errors.Is(err, errs.ErrExists) {
			t.Errorf("the same checkpoint again: %v", err)
		}
		g.written()
	})
}

// checkpointed takes a checkpoint of s, which its supervisor only promises because the gate is closed. The returned
// function waits until it is taken, or the supervisor is killed.
func (b *bench) checkpointed(mark string) (taken func()) {
	b.t.Helper()
	listed := false
	taken, err := b.Checkpoint(b.t.Context(), "s", mark, func() error {
		_, err := b.Catalog().TryLock("s")
		if listed = true; !errors.Is(err, errs.ErrBusy) {
			b.t.Errorf("the sandbox is not locked: %v", err)
		}
		return nil
	})
	if err != nil || !listed || !keypoint.IsPromised(b.state, "s") {
		b.t.Fatalf("a checkpoint: %v; listed: %v; promised: %v", err, listed, keypoint.IsPromised(b.state, "s"))
	}
	return taken
}

// TestACheckpointOutlivesItsSupervisor: the supervisor is killed after it has promised a checkpoint. The next command
// takes it. Cost: a second.
func TestACheckpointOutlivesItsSupervisor(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		g := b.gated()
		b.in("s", "true")
		taken := b.checkpointed("c1")
		g.killSupervisor()
		taken()
		h, err := b.Supervise.HoldAny(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		defer h.Release()
		if _, ok := h.Snapshot("c1"); !ok || keypoint.IsPromised(b.state, "s") {
			t.Errorf("the checkpoint was lost: %+v", h.Snapshots)
		}
	})
}

// TestAnIdleSandboxHasACheckpointAtOnce: without a supervisor the caller takes the snapshot. Cost: half a second.
func TestAnIdleSandboxHasACheckpointAtOnce(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.new("s")
		b.in("s", "echo 1 > f")
		b.halt("s")
		if _, err := b.Checkpoint(t.Context(), "s", "c1", func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		if rec, err := b.Catalog().Get("s"); err != nil || len(rec.Snapshots) != 1 {
			t.Errorf("no snapshot: %v", err)
		}
	})
}

// TestAFailedFrozenSnapshotIsReported: nobody waits for the snapshot when it fails. The next command reports it, once,
// and takes no snapshot of later files in its place. Cost: half a second.
func TestAFailedFrozenSnapshotIsReported(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.withKeyPoints("s", catalog.KeyPoints{At: []string{catalog.AtPlan}})
		b.in("s", "echo 1 > f")
		b.halt("s")
		other, said := b.reopen()
		hold := func(e *engine.Engine) *catalog.Locked {
			h, err := e.Supervise.HoldAny(t.Context(), "s")
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		full := func(context.Context, *catalog.Locked, []snapshot.ID) error { return errs.ErrNoSpace }
		why := catalog.Why{Point: catalog.AtExec, When: keypoint.After, Command: []string{"make"}}
		h := hold(b.Engine)
		if err := errors.Join(b.KeyPoints.Postpone("s", why), b.KeyPoints.Promise("s", "c1")); err != nil {
			t.Fatal(err)
		}
		b.KeyPoints.TakeFrozen(t.Context(), h, full, why)
		b.KeyPoints.TakePromised(t.Context(), h, full, "c1")
		h.Release()
		for range 2 {
			hold(other).Release()
		}
		text := strings.Join(*said, "\n")
		if len(*said) != 2 || !strings.Contains(text, "no snapshot of s after exec: make") || !strings.Contains(text, "c1 of s") || b.KeyPoints.HasPostponed("s") {
			t.Errorf("reported: %q; still due: %v", *said, b.KeyPoints.HasPostponed("s"))
		}
	})
}
