//go:build linux

// Snapfs-edge is the network proxy of one sandbox (`snapfs run --net allow:…`). Snapfs starts it and passes
// it the file descriptors that it needs. It is a program of its own because its network stack would add 0.3
// to 0.8 ms to every start of snapfs.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/edge"
	"github.com/snapfs/snapfs/network/source"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == network.ReadSecret {
		readSecret(os.Args[2:])
	}
	if len(os.Args) != 1 || !started() {
		fmt.Fprintln(os.Stderr, "snapfs-edge: only snapfs can start this program\nhint: snapfs run --net allow:NAME -- COMMAND")
		os.Exit(2)
	}
	if err := edge.Serve(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "snapfs-edge:", err)
		os.Exit(1)
	}
}

// readSecret prints the secret of the source args for the proxy, and ends this process.
func readSecret(args []string) {
	if err := source.Print(os.Stdout, args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// started reports whether snapfs started this process: the file descriptors that it needs (a TUN device and a
// socket) are open. A person who runs the program gets an error instead.
func started() bool {
	var st syscall.Stat_t
	return syscall.Fstat(edge.Supervisor, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFSOCK
}
