//go:build linux

package snapshottest

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// loses kills the process that serves a fork. That it was killed is told, and what was
// synced is there when the fork is mounted again; one that ends by itself is not lost.
func loses(x *workbench) {
	x.write("file", "base")
	x.capture("s1")
	v := x.fork("s1", "f1").View
	l := as[snapshot.Loser](x.b)
	ended, end := context.WithCancel(x.Context())
	end()
	before := treetest.Started(x)
	root := x.reach(v)
	server := slices.DeleteFunc(treetest.Started(x), func(pid int) bool { return slices.Contains(before, pid) })
	if len(server) != 1 {
		x.Fatalf("the processes %v serve the fork, want one", server)
	}
	if l.Lost(ended, "f1") {
		x.Error("a process that serves a fork is said to be lost")
	}
	f, err := os.Create(vfs.FDPath(root) + "/synced")
	x.must(err)
	_, err = f.WriteString("mine")
	x.must(errors.Join(err, f.Sync(), f.Close()))
	lost := x.lost("f1", func() { x.must(unix.Kill(server[0], unix.SIGKILL)) })
	if !lost {
		x.Error("a process that was killed is not said to be lost")
	}
	if _, err := os.Create(vfs.FDPath(root) + "/later"); !errors.Is(err, unix.ENOTCONN) && !errors.Is(err, unix.ECONNABORTED) { // the one if it was asked while the process ended
		x.Errorf("making a file in a fork whose process is lost gives %v", err)
	}
	x.must(root.Close())
	x.has(v, "synced", "mine", "mounted again")
	root = x.reach(v)
	if x.lost("f1", func() { x.must(root.Close()) }) {
		x.Error("a process that ended with the last mount is said to be lost")
	}
	if l.Lost(x.Context(), "no") {
		x.Error("the process of a fork that is not there is said to be lost")
	}
	x.clean()
}

// lost is what is told of a fork when its process has ended, which do brings about.
func (x *workbench) lost(fork snapshot.ForkID, do func()) (lost bool) {
	x.Helper()
	ctx, cancel := context.WithTimeout(x.Context(), 10*time.Second)
	defer cancel()
	told := make(chan bool)
	go func() { told <- as[snapshot.Loser](x.b).Lost(ctx, fork) }()
	select {
	case lost = <-told:
		x.Errorf("before anything has ended it is told that lost is %t", lost)
		do()
		return lost
	case <-time.After(20 * time.Millisecond):
	}
	do()
	lost = <-told
	if ctx.Err() != nil {
		x.Error("that the process has ended is not told")
	}
	return lost
}
