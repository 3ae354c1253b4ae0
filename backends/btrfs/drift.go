//go:build linux

package btrfs

import (
	"context"
	"errors"
	"iter"
	"math"
	"os"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/btrfs"
	"golang.org/x/sys/unix"
)

// DetectDrift yields the paths of the real tree that changed since the snapshot id, for
// [snapshot.DriftDetector]. Only root may; it first syncs the filesystem. A subvolume nested in the tree is
// compared separately, since the instant of its own snapshot; a nested subvolume that was replaced since is
// yielded with Tree set. If another subvolume is at the tree's path now: ErrNotSupported.
func (b *Backend) DetectDrift(ctx context.Context, id snapshot.ID) iter.Seq2[snapshot.Candidate, error] {
	return func(yield func(snapshot.Candidate, error) bool) {
		err := b.scanReal(ctx, string(id), func(t snapshot.Candidate) bool { return yield(t, nil) })
		if err != nil && !errors.Is(err, errEnough) {
			yield(snapshot.Candidate{}, b.fail("comparing with the real tree", string(id), err))
		}
	}
}

func (b *Backend) scanReal(ctx context.Context, id string, emit func(snapshot.Candidate) bool) error {
	r, err := b.enter()
	if err != nil {
		return notFoundIfMissing(err)
	}
	defer r.close()
	base, err := r.side(snapshots, id)
	if err != nil {
		return err
	}
	defer base.close()
	if os.Geteuid() != 0 {
		return searchError(unix.EPERM) // before the wait for the disk
	}
	m, err := r.readMark(snapshots + "/" + id)
	if err != nil {
		return err
	}
	real, err := b.realSide(m.tree)
	if err != nil {
		return err
	}
	defer real.close()
	return b.scanSides(ctx, real, base, emit)
}

// realSide opens the real tree, to compare it with a snapshot. The caller must close the result.
func (b *Backend) realSide(tree string) (*side, error) {
	if tree == b.tree {
		tree = b.from
	}
	src, err := findSource(tree)
	if err != nil {
		return nil, err
	}
	s := &side{within: src.within}
	if s.fd, err = unix.Open(src.root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
		return nil, &os.PathError{Op: "open", Path: src.root, Err: err}
	}
	if s.top, err = openIn(s.fd, src.within); err != nil {
		unix.Close(s.fd)
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(s.top, &st); err == nil {
		s.ino = st.Ino
		s.info, err = btrfs.Info(s.fd)
	}
	if err != nil {
		s.close()
		return nil, &os.PathError{Op: "stat", Path: tree, Err: err}
	}
	s.line = []ancestor{{s.info.UUID.String(), math.MaxUint64}}
	return s, nil
}
