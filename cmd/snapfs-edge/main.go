//go:build linux

// Snapfs-edge is the process at the edge of one sandbox's network (`snapfs run
// --net allow:…`). Snapfs starts it, with descriptors that nobody else has. It is a
// program of its own because what it stands on, a stack of network protocols, would
// cost every start of snapfs 0.3 to 0.8 ms.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/snapfs/snapfs/network/edge"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if len(os.Args) != 1 || !started() {
		fmt.Fprintln(os.Stderr, "snapfs-edge: it is started by snapfs\nhint: snapfs run --net allow:NAME -- COMMAND")
		os.Exit(2)
	}
	if err := edge.Serve(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "snapfs-edge:", err)
		os.Exit(1)
	}
}

// started reports whether it has been given what snapfs gives it.
func started() bool {
	var st syscall.Stat_t
	return syscall.Fstat(edge.Supervisor, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFSOCK
}
