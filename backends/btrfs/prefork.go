//go:build linux

package btrfs

import (
	"context"
	"errors"
	"iter"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
)

// preforkWorkers is how many forks [Backend.Prefork] makes at once, since concurrent creations share a btrfs
// commit.
const preforkWorkers = 8

// Prefork makes forks of the snapshot from in advance until at least n exist, for [snapshot.Preforker], so
// that Fork only has to rename one. Remove removes them with the snapshot.
func (b *Backend) Prefork(ctx context.Context, from snapshot.ID, n int) error {
	return b.fail("preforking", string(from), b.prefork(ctx, from, n))
}

func (b *Backend) prefork(ctx context.Context, from snapshot.ID, n int) error {
	r, err := b.enter()
	if err != nil {
		return notFoundIfMissing(err)
	}
	defer r.close()
	m, info, err := r.load(snapshots, string(from))
	if err != nil {
		return err
	}
	shelf := stock + "/" + string(from)
	if err := unix.Mkdirat(r.fd, shelf, 0o700); err != nil && err != unix.EEXIST {
		return &os.PathError{Op: "make", Path: shelf, Err: err}
	}
	missing := n - len(r.ready(shelf))
	fm := forkMark(from, m, info)
	var wait sync.WaitGroup
	errs := make([]error, min(preforkWorkers, max(missing, 0)))
	for w := range errs {
		wait.Go(func() {
			for i := w; i < missing && errs[w] == nil; i += preforkWorkers {
				errs[w] = r.makeFork(ctx, string(from), shelf, unique(), fm)
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// ready returns the names of the complete forks that [Backend.Prefork] has made in advance. shelf is the
// directory with those of one snapshot.
func (r dataDir) ready(shelf string) []string {
	var whole []string
	for name := range r.eachReady(shelf, 0) {
		whole = append(whole, name)
	}
	return whole
}

// eachReady yields the names of the complete forks that were made in advance in the directory shelf, starting
// at the index from. It checks each only when it yields it.
func (r dataDir) eachReady(shelf string, from int) iter.Seq[string] {
	return func(yield func(string) bool) {
		all, err := r.list(shelf)
		if err != nil {
			return // no fork was made in advance
		}
		for i := range all {
			name := all[(from+i)%len(all)]
			if r.has(shelf, name+"/"+treeName) && !yield(name) {
				return
			}
		}
	}
}

func (r dataDir) hasReadyMade(from string) bool {
	for range r.eachReady(stock+"/"+from, 0) {
		return true
	}
	return false
}

// claimReadyMade makes a fork that was made in advance of the snapshot from the fork id, by renaming it. If
// another process takes that one first, it tries the next; false if none is left. Errors: ErrExists.
func (r dataDir) claimReadyMade(ctx context.Context, from, id string) (bool, error) {
	start := int(next.Add(1)) // so that concurrent calls try different ones first
	for name := range r.eachReady(stock+"/"+from, start) {
		if err := fault.Point(ctx, "take a ready-made fork"); err != nil {
			return false, err
		}
		switch err := unix.Renameat2(r.fd, stock+"/"+from+"/"+name, r.fd, forks+"/"+id, unix.RENAME_NOREPLACE); err {
		case nil:
			return true, nil
		case unix.ENOENT:
		case unix.EEXIST:
			return false, &errs.Error{Kind: errs.ErrExists, Err: errors.New("the id exists")}
		default:
			return false, &os.PathError{Op: "rename", Path: name, Err: err}
		}
	}
	return false, nil
}
