//go:build linux

// Snapfs-fuse serves one tree of a sandbox over FUSE, if no filesystem of the kernel can do it: a fork of
// package backends/fusecow, a tree with id mapping by package isolate/idmap, or a view of a sandbox on the
// host by package isolate/hostview. Its arguments say which. Snapfs starts it with private descriptors, and
// it ends with the last mount of the tree. It is a separate program because initialising go-fuse would add
// 0.3 ms to every start of snapfs.
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
	"github.com/snapfs/snapfs/isolate/hostview/viewserver"
	"github.com/snapfs/snapfs/isolate/idmap"
)

func main() {
	// The heap holds an entry for each inode that the kernel knows, perhaps a million, for a long time. Limit
	// garbage to a third of that.
	debug.SetGCPercent(35)
	serve, ok := parseArgs(os.Args[1:])
	if !ok {
		fmt.Fprintln(os.Stderr, "snapfs-fuse: only snapfs starts this program\nhint: snapfs run --backend fusecow -- COMMAND")
		os.Exit(2)
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "snapfs-fuse:", err)
		os.Exit(1)
	}
}

// parseArgs returns the function that serves the tree that the arguments select: a fork without arguments, or
// a tree with mapped ids for "shift" and the offset of ids. ok is false for other arguments, because only
// snapfs starts this program.
func parseArgs(args []string) (serve func() error, ok bool) {
	if len(args) == 0 && hasStarter() {
		return func() error {
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			mount.LimitMemory()
			return fusecow.Serve(ctx, mount.Mount)
		}, true
	}
	if readOnly := len(args) == 6 && args[5] == "read-only"; (len(args) == 5 || readOnly) && args[0] == "view" {
		return parseView(args[1:5], readOnly)
	}
	if len(args) != 2 || args[0] != "shift" {
		return nil, false
	}
	base, err := strconv.ParseUint(args[1], 10, 32)
	if err != nil || base == 0 {
		return nil, false
	}
	return func() error { return idmap.Serve(idmap.Device, os.NewFile(idmap.Tree, "tree"), uint32(base)) }, true
}

// parseView returns the function that shows a sandbox's files at a directory of the host, by FUSE. args are
// that directory, the sandbox's control socket, the real directory and the first of the user ids of the
// sandbox's container. readOnly makes it refuse writes. ok is false for other arguments.
func parseView(args []string, readOnly bool) (serve func() error, ok bool) {
	base, err := strconv.ParseUint(args[3], 10, 32)
	if err != nil {
		return nil, false
	}
	return func() error {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		return viewserver.Serve(ctx, args[0], args[1], args[2], uint32(base), readOnly)
	}, true
}

// hasStarter reports whether snapfs started this process, with a socket for requests. If not, a person did,
// who gets an error.
func hasStarter() bool {
	var st syscall.Stat_t
	return syscall.Fstat(fusecow.StarterFD, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFSOCK
}
