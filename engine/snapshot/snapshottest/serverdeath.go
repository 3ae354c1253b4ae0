//go:build linux

package snapshottest

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
)

// reportsServerDeath is a test that every [snapshot.ServerMonitor] must pass: it kills the server process of
// a fork. WaitExit must report the kill, and a new mount must show all synced data. A server that ends by
// itself is not reported as killed.
func reportsServerDeath(x *workbench) {
	x.write("file", "base")
	x.capture("s1")
	v := x.fork("s1", "f1").View
	l := as[snapshot.ServerMonitor](x.b)
	ended, end := context.WithCancel(x.Context())
	end()
	before := treetest.Started(x)
	root := x.reach(v)
	server := slices.DeleteFunc(treetest.Started(x), func(pid int) bool { return slices.Contains(before, pid) })
	if len(server) != 1 {
		x.Fatalf("the fork has the servers %v, want one", server)
	}
	if l.WaitExit(ended, "f1") {
		x.Error("WaitExit reports a running server as killed")
	}
	f, err := os.Create(vfs.FDPath(root) + "/synced")
	x.must(err)
	_, err = f.WriteString("mine")
	x.must(errors.Join(err, f.Sync(), f.Close()))
	lost := x.lost("f1", func() { x.must(unix.Kill(server[0], unix.SIGKILL)) })
	if !lost {
		x.Error("WaitExit does not report a killed server")
	}
	_, err = os.Create(vfs.FDPath(root) + "/later")
	if !errors.Is(err, unix.ENOTCONN) && !errors.Is(err, unix.ECONNABORTED) { // ECONNABORTED: the request was under way at the kill
		x.Errorf("creating a file in a fork whose server was killed returns %v", err)
	}
	x.must(root.Close())
	x.has(v, "synced", "mine", "mounted again")
	root = x.reach(v)
	if x.lost("f1", func() { x.must(root.Close()) }) {
		x.Error("WaitExit reports a server that ended with its last mount as killed")
	}
	if l.WaitExit(x.Context(), "no") {
		x.Error("WaitExit reports the server of an unknown fork as killed")
	}
	x.clean()
}

// lost calls do, which ends the server process of the fork, and returns the result of WaitExit: whether the
// server was killed.
func (x *workbench) lost(fork snapshot.ForkID, do func()) (lost bool) {
	x.Helper()
	ctx, cancel := context.WithTimeout(x.Context(), 10*time.Second)
	defer cancel()
	result := make(chan bool)
	go func() { result <- as[snapshot.ServerMonitor](x.b).WaitExit(ctx, fork) }()
	select {
	case lost = <-result:
		x.Errorf("WaitExit returns %t before the server has ended", lost)
		do()
		return lost
	case <-time.After(20 * time.Millisecond):
	}
	do()
	lost = <-result
	if ctx.Err() != nil {
		x.Error("WaitExit does not return after the server has ended")
	}
	return lost
}
