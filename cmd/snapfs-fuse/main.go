// Snapfs-fuse is the process that serves the tree of one sandbox which no filesystem of
// the kernel shows (`snapfs run --backend fusecow`). Snapfs starts it, and it ends with
// the last mount of the tree. It is a program of its own because what it stands on would
// cost every start of snapfs 0.3 ms.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/snapfs/snapfs/backends/fusecow"
	"github.com/snapfs/snapfs/backends/fusecow/mount"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if len(os.Args) != 1 || !started() {
		fmt.Fprintln(os.Stderr, "snapfs-fuse: it is started by snapfs\nhint: snapfs run --backend fusecow -- COMMAND")
		os.Exit(2)
	}
	if err := fusecow.Serve(ctx, mount.Mount); err != nil {
		fmt.Fprintln(os.Stderr, "snapfs-fuse:", err)
		os.Exit(1)
	}
}

// started reports whether it has been given what snapfs gives it.
func started() bool {
	var st syscall.Stat_t
	return syscall.Fstat(fusecow.Starter, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFSOCK
}
