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

// moduleVersion says which version of OpenZFS the kernel has.
var moduleVersion = "/sys/module/zfs/version"

// quick has the kernel do what zfs(8) would ask of it, without starting that, which takes longer than all
// else, and answers with what it has to say and whether it did. Where it did not, nothing has happened, and zfs(8) does it,
// or says why not: what goes wrong has one source of words. ZFS 2 alone is asked: its numbers and lists cannot change.
func quick(ctx context.Context, call zfs.Call, name string, pairs ...zfs.Pair) (said []byte, done bool) {
	if ctx.Err() != nil || !known() {
		return nil, false
	}
	said, err := zfs.ZFS(call, name, zfs.Pairs(pairs...))
	return said, err == nil
}

// known reports whether the module is of the version whose calls are known.
func known() bool {
	version, err := os.ReadFile(moduleVersion)
	return err == nil && strings.HasPrefix(string(version), "2.")
}

// exists asks the kernel whether there is a dataset, and answers with whether it could tell.
func exists(dataset string) (there, told bool) {
	if !known() {
		return false, false
	}
	_, err := zfs.ZFS(zfs.Stats, dataset, zfs.Pairs())
	return err == nil, err == nil || errors.Is(err, unix.ENOENT)
}

// each is a pair for each of the names, with the same value.
func each(names []string, value any) []zfs.Pair {
	var pairs []zfs.Pair
	for _, name := range names {
		pairs = append(pairs, zfs.Pair{Name: name, Value: value})
	}
	return pairs
}
