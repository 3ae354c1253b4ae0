//go:build linux

package zfs

import (
	"context"
	"os"
	"strings"

	"github.com/snapfs/snapfs/internal/kernel"
)

// moduleVersion says which version of OpenZFS the kernel has.
var moduleVersion = "/sys/module/zfs/version"

// quick has the kernel do what zfs(8) would ask of it, without starting that, which takes longer than all
// else, and answers with what it has to say and whether it did. Where it did not, nothing has happened, and zfs(8) does it,
// or says why not: what goes wrong has one source of words. ZFS 2 alone is asked: its numbers and lists cannot change.
func quick(ctx context.Context, call kernel.ZFSCall, name string, pairs ...kernel.ZFSPair) (said []byte, done bool) {
	if !known() || ctx.Err() != nil {
		return nil, false
	}
	said, err := kernel.ZFS(call, name, kernel.ZFSPairs(pairs...))
	return said, err == nil
}

// known reports whether the module's calls are those that we know.
func known() bool {
	version, err := os.ReadFile(moduleVersion)
	return err == nil && strings.HasPrefix(string(version), "2.")
}

// each is a pair for each of the names, with the same value.
func each(names []string, value any) []kernel.ZFSPair {
	var pairs []kernel.ZFSPair
	for _, name := range names {
		pairs = append(pairs, kernel.ZFSPair{Name: name, Value: value})
	}
	return pairs
}
