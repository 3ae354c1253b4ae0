//go:build linux

package zfs

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/snapfs/snapfs/internal/zfs"
	"golang.org/x/sys/unix"
)

// moduleVersion is the file with the version of the kernel's OpenZFS, by which snapfs decides whether it
// knows the ioctls. It is a variable for tests.
var moduleVersion = "/sys/module/zfs/version"

// callKernel makes the ioctl call about the dataset or pool name that zfs(8) would make, and avoids starting
// a process, which takes longer. It returns the kernel's reply, and done if the call succeeded. After a
// failed call nothing has changed, and the caller runs zfs(8), so that the user always sees the error texts
// of zfs(8). It works only with ZFS 2, whose call numbers and arguments are fixed.
func callKernel(ctx context.Context, call zfs.Call, name string, pairs ...zfs.Pair) (said []byte, done bool) {
	if ctx.Err() != nil || !knownVersion() {
		return nil, false
	}
	said, err := zfs.ZFS(call, name, zfs.Pairs(pairs...))
	return said, err == nil
}

// knownVersion reports whether the kernel's ZFS module has a version whose ioctl numbers and arguments this
// package knows.
func knownVersion() bool {
	version, err := os.ReadFile(moduleVersion)
	return err == nil && strings.HasPrefix(string(version), "2.")
}

// exists reports whether a ZFS dataset exists, by an ioctl. known is false if the kernel does not answer
// that.
func exists(dataset string) (there, known bool) {
	if !knownVersion() {
		return false, false
	}
	_, err := zfs.ZFS(zfs.Stats, dataset, zfs.Pairs())
	return err == nil, err == nil || errors.Is(err, unix.ENOENT)
}

// each returns a [zfs.Pair] of each name, such as that of a snapshot, and the same value, as an argument of a
// ZFS ioctl.
func each(names []string, value any) []zfs.Pair {
	var pairs []zfs.Pair
	for _, name := range names {
		pairs = append(pairs, zfs.Pair{Name: name, Value: value})
	}
	return pairs
}
