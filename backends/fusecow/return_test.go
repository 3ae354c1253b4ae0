//go:build linux

package fusecow_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

const (
	treeEnv = "SNAPFS_TEST_FUSECOW_TREE"
	dirEnv  = "SNAPFS_TEST_FUSECOW_DIR"
)

type returning interface {
	snapshot.Backend
	snapshot.Returner
}

func openReturning(t *testing.T, place snapshot.Place) returning {
	t.Helper()
	b, err := driver().Open(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	r, ok := b.(returning)
	if !ok {
		t.Fatal("it takes nothing back")
	}
	return r
}

// TestBaseWaitsForARunningReturn: the client is killed about when it sends its request. Base and the files then
// agree on whether the server has handled it.
func TestBaseWaitsForARunningReturn(t *testing.T) {
	if tree := os.Getenv(treeEnv); tree != "" { // the process to be killed
		b := openReturning(t, snapshot.Place{Tree: snapshot.Tree{Path: tree}, Dir: os.Getenv(dirEnv)})
		t.Fatal(b.Return(t.Context(), "f", "base", snapshot.InUse))
	}
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	place := snapshottest.OnDisk(t)
	b := openReturning(t, place)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(place.Tree.Path+"/file", []byte("base"), 0o600))
	_, err := b.Capture(t.Context(), place.Tree, "base")
	must(err)
	f, err := b.Fork(t.Context(), "base", "f")
	must(err)
	fd, err := f.View.Served.Mount(t.Context(), false)
	must(err)
	root := os.NewFile(uintptr(fd), "root")
	defer root.Close()
	file := vfs.FDPath(root) + "/file"
	must(os.WriteFile(file, []byte("changed"), 0o600))
	_, err = b.Seal(t.Context(), "f", "s", snapshot.InUse)
	must(err)

	sockets, err := filepath.Glob(place.Dir + "/layers/f-*/ask")
	if err != nil || len(sockets) != 1 {
		t.Fatalf("it listens at %q, %v", sockets, err)
	}
	p, err := fdsock.Dial(sockets[0])
	must(err)
	server, err := p.Peer()
	must(err)
	must(p.Close())
	must(unix.Kill(server.PID, unix.SIGSTOP))
	defer unix.Kill(server.PID, unix.SIGCONT) // it is already running, or the test has failed
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	until := func(stopped bool) {
		t.Helper()
		must(poll.Until(ctx, time.Millisecond, time.Millisecond, func() (bool, error) {
			return proc.Stopped(server) == stopped, nil
		}))
	}
	until(true)
	t.Setenv(treeEnv, place.Tree.Path)
	t.Setenv(dirEnv, place.Dir)
	self, err := os.Executable()
	must(err)
	asks, err := run.Background([]string{self, "-test.run=^" + t.Name() + "$"}, nil)
	must(err)
	until(false) // the client continues the server, and then sends the request
	must(asks.Kill())
	_, err = asks.Wait()
	must(err)
	base, err := b.Base(t.Context(), "f")
	must(err)
	got, err := os.ReadFile(file)
	must(err)
	want := map[snapshot.ID]string{"base": "base", "s": "changed"}[base] // s: it was killed before it asked
	if want == "" || string(got) != want {
		t.Errorf("the fork is one of %s, and its file holds %q", base, got)
	}
}

// TestReturnedLayerLeavesTheQuota: afterwards the quota has as much left as for a new fork of that state.
func TestReturnedLayerLeavesTheQuota(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	place := snapshottest.OnDisk(t)
	b := openReturning(t, place)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := b.Capture(t.Context(), place.Tree, "base")
	must(err)
	f, err := b.Fork(t.Context(), "base", "fork")
	must(err)
	limiter, _ := b.(snapshot.Limiter)
	must(limiter.LimitFork(t.Context(), "fork", snapshot.DiskLimit{Bytes: 20 << 20}))
	fd, err := f.View.Served.Mount(t.Context(), false)
	must(err)
	root := os.NewFile(uintptr(fd), "root")
	defer root.Close()
	must(os.WriteFile(vfs.FDPath(root)+"/some", make([]byte, 15<<20), 0o644))
	_, err = b.Seal(t.Context(), "fork", "state", snapshot.InUse)
	must(err)
	must(b.Return(t.Context(), "fork", "base", snapshot.InUse))
	if err := os.WriteFile(vfs.FDPath(root)+"/other", make([]byte, 15<<20), 0o644); err != nil {
		t.Errorf("what was taken back counts still: %v", err)
	}
}
