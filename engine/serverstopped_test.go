package engine_test

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/treetest"
)

// A stopped server of a fork would answer nobody. The command that needs it continues it, also to list all sandboxes
// and to end this one.
func TestAStoppedServerHoldsUpNobody(t *testing.T) {
	treetest.NeedDevice(t, "/dev/fuse")
	b := newBench(t)
	b.write("text", "base\n")
	req := b.request()
	req.Name, req.Backend = "s", "fusecow"
	if _, err := b.New(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	b.in("s", "echo mine >> text")
	k := b.talk("s")
	ops := []struct {
		name string
		do   func() error
	}{
		{"list", func() error { return second(b.List(t.Context(), true)) }},
		{"plan", func() error { return second(b.Reconcile.PlanOf(t.Context(), "s", reconcile.PlanOptions{})) }},
		{"snapshot", func() error { return second(b.Snapshot(t.Context(), "s", "k")) }},
		{"stop", func() error { return b.Supervise.Stop(t.Context(), "s") }},
	}
	for _, op := range ops {
		server := b.serverOf("s")
		if err := syscall.Kill(server.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		b.awaitStopped(server)
		if err := op.do(); err != nil {
			t.Errorf("%s: %v", op.name, err)
		}
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	b.sound("a server stopped")
}

// awaitStopped waits until the process p, which was sent SIGSTOP, is stopped, for a minute at most.
func (b *bench) awaitStopped(p proc.Process) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	stopped := func() (bool, error) { return proc.Stopped(p), nil }
	if err := poll.Until(ctx, time.Millisecond, 20*time.Millisecond, stopped); err != nil {
		b.t.Fatalf("process %d is not stopped: %v", p.PID, err)
	}
}

// serverOf returns the process that serves the fork of the workspace of a running sandbox on fusecow, the only
// one of the bench.
func (b *bench) serverOf(name string) proc.Process {
	b.t.Helper()
	sockets, err := filepath.Glob(filepath.Join(b.state, "data/fusecow/layers/*/ask"))
	for _, path := range sockets {
		c, err := fdsock.Dial(path)
		if err != nil {
			continue // of a layer that nobody serves
		}
		server, err := c.Peer()
		if cerr := c.Close(); err != nil || cerr != nil {
			b.t.Fatal(err, cerr)
		}
		return server
	}
	b.t.Fatalf("nobody serves the files of %s: %q, %v", name, sockets, err)
	return proc.Process{}
}
