//go:build linux

package zfs

import (
	"context"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/run"
)

// Usage returns the space of data in the fork that was written since its base (the property written of
// zfsprops(7)), after compression, with ZFS's metadata, for [snapshot.ChangeLister]. Cost: a transaction
// group, because data that is not on the disk is not counted, and two processes.
func (b *Backend) Usage(ctx context.Context, fork snapshot.ForkID) (snapshot.Bytes, error) {
	n, err := b.usage(ctx, string(fork))
	return n, fail("measuring", string(fork), err)
}

func (b *Backend) usage(ctx context.Context, fork string) (snapshot.Bytes, error) {
	m, err := b.find(forks, fork)
	if err != nil {
		return 0, err
	}
	pool, _, _ := strings.Cut(m.dataset, "/")
	if _, err := run.Output(ctx, "zpool", "sync", pool); err != nil {
		return 0, errorOf(err)
	}
	text, err := zfsCmd(ctx, "get", "-H", "-p", "-o", "value", "written", m.dataset)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0, corrupt("the property written is no number: " + text)
	}
	return snapshot.Bytes(n), nil
}
