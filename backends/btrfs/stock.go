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

// stockers is how many forks are made at once: they share their commits.
const stockers = 8

// Stock keeps the contract of [snapshot.Stocker]: afterwards n forks of from are
// put by, at least. What is put by goes when from is removed.
func (b *Backend) Stock(ctx context.Context, from snapshot.ID, n int) error {
	return b.fail("stocking", string(from), b.stock(ctx, from, n))
}

func (b *Backend) stock(ctx context.Context, from snapshot.ID, n int) error {
	r, err := b.enter()
	if err != nil {
		return absent(err)
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
	failures := make([]error, min(stockers, max(missing, 0)))
	for w := range failures {
		wait.Go(func() {
			for i := w; i < missing && failures[w] == nil; i += stockers {
				failures[w] = r.grow(ctx, string(from), shelf, unique(), fm)
			}
		})
	}
	wait.Wait()
	return errors.Join(failures...)
}

// ready names the whole forks on a shelf.
func (r room) ready(shelf string) []string {
	var whole []string
	for name := range r.eachReady(shelf, 0) {
		whole = append(whole, name)
	}
	return whole
}

// eachReady goes through the whole forks on a shelf, from some place on, and
// looks at each only when it comes to it.
func (r room) eachReady(shelf string, from int) iter.Seq[string] {
	return func(yield func(string) bool) {
		all, err := r.list(shelf)
		if err != nil {
			return // no shelf, no stock
		}
		for i := range all {
			name := all[(from+i)%len(all)]
			if r.has(shelf, name+"/"+treeName) && !yield(name) {
				return
			}
		}
	}
}

func (r room) stocked(from string) bool {
	for range r.eachReady(stock+"/"+from, 0) {
		return true
	}
	return false
}

// claim makes a fork that was put by the fork id. Another process may take it
// first: then the next is tried. ErrExists.
func (r room) claim(ctx context.Context, from, id string) (bool, error) {
	start := int(next.Add(1)) // so that not all reach for the same one
	for name := range r.eachReady(stock+"/"+from, start) {
		if err := fault.Point(ctx, "take one from the stock"); err != nil {
			return false, err
		}
		switch err := unix.Renameat2(r.fd, stock+"/"+from+"/"+name, r.fd, forks+"/"+id, unix.RENAME_NOREPLACE); err {
		case nil:
			return true, nil
		case unix.ENOENT:
		case unix.EEXIST:
			return false, &problem{kind: errs.ErrExists, why: "the id is taken"}
		default:
			return false, &os.PathError{Op: "rename", Path: name, Err: err}
		}
	}
	return false, nil
}
