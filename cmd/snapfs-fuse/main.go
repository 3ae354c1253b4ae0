//go:build linux

// Snapfs-fuse is a process that shows one tree of a sandbox over FUSE, where no filesystem
// of the kernel's can: what it is told at its start says whether that is a fork kept by
// package backends/fusecow, or a tree shown with other users by package isolate/shift.
// Snapfs starts it, with descriptors that nobody else has, and it ends with the last
// mount of the tree. It is a program of its own because the library that it stands on
// would cost every start of snapfs 0.3 ms.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/snapfs/snapfs/backends/fusecow"
	"github.com/snapfs/snapfs/backends/fusecow/mount"
	"github.com/snapfs/snapfs/isolate/shift"
)

func main() {
	// What it knows of each node that the kernel knows stays for long, and there may be a
	// million of them: no more than a third as much again is to be garbage.
	debug.SetGCPercent(35)
	serve, ok := parseArgs(os.Args[1:])
	if !ok {
		fmt.Fprintln(os.Stderr, "snapfs-fuse: it is started by snapfs\nhint: snapfs run --backend fusecow -- COMMAND")
		os.Exit(2)
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "snapfs-fuse:", err)
		os.Exit(1)
	}
}

// told is what is to be done, where that was said as snapfs says it: nothing, or
// "shift" and the number that users are higher by.
func parseArgs(args []string) (serve func() error, ok bool) {
	if len(args) == 0 && hasStarter() {
		return func() error {
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			return fusecow.Serve(ctx, mount.Mount)
		}, true
	}
	if len(args) != 2 || args[0] != "shift" {
		return nil, false
	}
	base, err := strconv.ParseUint(args[1], 10, 32)
	if err != nil || base == 0 {
		return nil, false
	}
	return func() error { return shift.Serve(shift.Device, os.NewFile(shift.Tree, "tree"), uint32(base)) }, true
}

// started reports whether there is somebody to say what is to be served.
func hasStarter() bool {
	var st syscall.Stat_t
	return syscall.Fstat(fusecow.StarterFD, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFSOCK
}
