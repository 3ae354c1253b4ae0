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

// moduleVersion is the file with the version of the kernel's OpenZFS.
var moduleVersion = "/sys/module/zfs/version"

// callKernel makes a call of the kernel that zfs(8) would make, without starting zfs(8), which would
// take longer than the call. It returns the kernel's reply, and whether the call succeeded. After a
// failed call nothing has changed, and the caller runs zfs(8), which does the work or reports the
// error; so all error texts come from one source. Only ZFS 2 is called this way: its call numbers
// and arguments cannot change.
func callKernel(ctx context.Context, call zfs.Call, name string, pairs ...zfs.Pair) (said []byte, done bool) {
	if ctx.Err() != nil || !knownVersion() {
		return nil, false
	}
	said, err := zfs.ZFS(call, name, zfs.Pairs(pairs...))
	return said, err == nil
}

// knownVersion reports whether the module has a version whose calls are known.
func knownVersion() bool {
	version, err := os.ReadFile(moduleVersion)
	return err == nil && strings.HasPrefix(string(version), "2.")
}

// exists asks the kernel whether a dataset exists. known is false if the kernel cannot be asked.
func exists(dataset string) (there, known bool) {
	if !knownVersion() {
		return false, false
	}
	_, err := zfs.ZFS(zfs.Stats, dataset, zfs.Pairs())
	return err == nil, err == nil || errors.Is(err, unix.ENOENT)
}

// each returns a pair with this value for each name.
func each(names []string, value any) []zfs.Pair {
	var pairs []zfs.Pair
	for _, name := range names {
		pairs = append(pairs, zfs.Pair{Name: name, Value: value})
	}
	return pairs
}
