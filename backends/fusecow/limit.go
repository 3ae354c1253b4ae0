//go:build linux

package fusecow

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/mount"
	"golang.org/x/sys/unix"
)

var _ interface {
	snapshot.Limiter
	snapshot.LimitProber
	snapshot.Sharer
	snapshot.Gauge
} = (*backend)(nil)

// A limit is what a fork's record says of one: what it was set to, and the file in
// quotas/ that its layers count in, and whose limit holds. A file that several share has
// the limit that was set last.
type limit struct {
	Bytes  int64  `json:"bytes,omitempty"`
	Inodes int64  `json:"inodes,omitempty"`
	Quota  string `json:"quota"`
}

func (l *limit) usage() layer.Usage { return layer.Usage{Bytes: l.Bytes, Inodes: l.Inodes} }

func (b *backend) quotaPath(name string) string { return b.dir + "/quotas/" + name }

// quotaName is where a fork with this limit counts.
func quotaName(id snapshot.ForkID, l snapshot.DiskLimit) string {
	if l.Share == "" {
		return "fork-" + string(id)
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, l.Share) // it never fails
	return fmt.Sprintf("share-%x", h.Sum64())
}

// LimitPlace keeps the contract of [snapshot.Sharer].
func (b *backend) LimitPlace() string { return name + " " + b.dir }

// CanLimit keeps the contract of [snapshot.LimitProber]: whoever runs it can, by bytes
// and inodes, where the filesystem says at once what a file takes up.
func (b *backend) CanLimit(_ context.Context, l snapshot.DiskLimit) error {
	if l == (snapshot.DiskLimit{}) {
		return nil
	}
	return fail("limiting", "", b.canLimit())
}

func (b *backend) canLimit() error {
	at := b.dir
	for unix.Access(at, unix.F_OK) != nil && at != "/" {
		at = filepath.Dir(at)
	}
	f, err := mount.FilesystemOf(at)
	if err != nil {
		return err
	}
	if f.Type == "zfs" {
		return because(errs.ErrNotSupported, b.dir, "the filesystem of the layers, zfs, says only seconds later what a file takes up",
			"snapfs run --backend zfs …", "SNAPFS_HOME=/a/directory/elsewhere snapfs …")
	}
	return nil
}

// LimitFork keeps the contract of [snapshot.Limiter]. Writes beyond the limit fail with
// EDQUOT, a page that was written through a mapping when it is written back. The log
// counts, as far as it tells of more; removing needs no room. What is added to a file
// beyond its end by allocating ahead counts.
func (b *backend) LimitFork(ctx context.Context, fork snapshot.ForkID, l snapshot.DiskLimit) error {
	return fail("limiting", string(fork), b.limitFork(ctx, fork, l))
}

func (b *backend) limitFork(ctx context.Context, id snapshot.ForkID, l snapshot.DiskLimit) error {
	if _, err := b.fork(id); err != nil {
		return err
	}
	if l != (snapshot.DiskLimit{}) {
		if err := b.canLimit(); err != nil {
			return err
		}
	}
	unlockFork, err := b.lockFork(ctx, id)
	if err != nil {
		return err
	}
	defer unlockFork()
	unlock, err := b.lock(ctx, unix.LOCK_SH) // the quota stays until the record names it
	if err != nil {
		return err
	}
	defer unlock()
	r, err := b.fork(id)
	if err != nil {
		return err
	}
	if l.Bytes == 0 && l.Inodes == 0 {
		return b.unlimit(ctx, id, r)
	}
	next := r
	next.Limit = &limit{Bytes: int64(l.Bytes), Inodes: l.Inodes, Quota: quotaName(id, l)}
	q, err := layer.OpenQuota(b.quotaPath(next.Limit.Quota))
	if err != nil {
		return err
	}
	defer q.Close()
	if err := b.relimit(ctx, id, r, next); err != nil {
		return err
	}
	if err := fault.Point(ctx, "set the limit"); err != nil {
		return errors.Join(err, b.relimit(context.WithoutCancel(ctx), id, next, r))
	}
	q.SetLimit(next.Limit.usage())
	return nil
}

// unlimit takes the limit of a fork away. Those that shared it keep it.
func (b *backend) unlimit(ctx context.Context, id snapshot.ForkID, r record) error {
	if r.Limit == nil {
		return nil
	}
	next := r
	next.Limit = nil
	if err := b.relimit(ctx, id, r, next); err != nil {
		return err
	}
	b.dropQuota(id, r.Limit)
	return nil
}

// dropQuota removes a quota that nobody shares. One that stays is swept.
func (b *backend) dropQuota(id snapshot.ForkID, l *limit) {
	if l != nil && l.Quota == quotaName(id, snapshot.DiskLimit{}) {
		_ = os.Remove(b.quotaPath(l.Quota))
	}
}

// uncount takes the layer that a removed fork wrote to out of its quota.
func (b *backend) unchargeFork(id snapshot.ForkID, r *record) {
	b.unchargeTop(r)
	b.dropQuota(id, r.Limit)
}

// uncountLayers takes the layers of one record of a fork out of its quota that the other does not count.
func (b *backend) unchargeLayers(left, kept *record) {
	if left.Limit == nil {
		return
	}
	q, err := b.quota(left)
	if err != nil { // a sweep does it
		return
	}
	defer q.Close()
	for _, l := range left.Layers[left.Own:] {
		if !slices.Contains(kept.Layers[kept.Own:], l) {
			_ = q.SetUsage(b.layerPath(l), layer.Usage{})
		}
	}
}

// uncountLayer takes the topmost layer of a record out of its quota.
func (b *backend) unchargeTop(r *record) {
	if r.Limit == nil {
		return
	}
	if q, err := b.quota(r); err == nil { // or a sweep does it
		_ = q.SetUsage(b.layerPath(r.upper()), layer.Usage{})
		q.Close()
	}
}

// relimit puts the record next in the place of the fork's, which is was, and has its
// layers count where that says. After an error it is as it was. The caller holds the
// fork's lock.
func (b *backend) relimit(ctx context.Context, id snapshot.ForkID, was, next record) error {
	if err := fault.Point(ctx, "write down the limit"); err != nil {
		return err
	}
	if err := b.replace(b.forkPath(id), &next); err != nil {
		return err
	}
	if was.Limit != nil && next.Limit != nil && was.Limit.Quota == next.Limit.Quota {
		return nil
	}
	err := fault.Point(ctx, "count elsewhere")
	if err == nil {
		err = b.recharge(ctx, &next)
	}
	if err != nil {
		err = errors.Join(err, b.replace(b.forkPath(id), &was), b.recharge(context.WithoutCancel(ctx), &was))
	}
	return err
}

// recount has the layers of a fork count where its record says: who serves it does so, or
// it is set to what their logs tell.
func (b *backend) recharge(ctx context.Context, r *record) error {
	return b.retryBusy(ctx, b.layerPath(r.upper()), func() (again bool, err error) {
		if _, err = b.requestLayer(r.upper(), request{Recount: true}); !errors.Is(err, errNotServed) {
			return errors.Is(err, unix.EBUSY), err
		}
		clean, release, err := layer.TryLock(b.layerPath(r.upper()))
		if err == nil {
			defer release()
		}
		if err != nil || r.Limit == nil {
			return errors.Is(err, unix.EBUSY), err
		}
		if !clean {
			release()
			err = b.recover(r)
			return err == nil || errors.Is(err, unix.EBUSY), err
		}
		return false, b.chargeLayers(r, anyLayer)
	})
}

// countIn sets what those layers of a fork hold in its quota that nobody serves.
func (b *backend) chargeLayers(r *record, unserved func(path string) bool) error {
	q, err := b.quota(r)
	if err != nil {
		return err
	}
	defer q.Close()
	for i, l := range r.Layers[r.Own:] {
		if !unserved(b.layerPath(l)) {
			continue
		}
		u, err := layer.LogUsage(b.layerPath(l), r.index(r.Own+i))
		if err == nil {
			err = q.SetUsage(b.layerPath(l), u)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func anyLayer(string) bool { return true }

// quota is the quota that a record names.
func (b *backend) quota(r *record) (*layer.Quota, error) {
	q, err := layer.OpenQuota(b.quotaPath(r.Limit.Quota))
	if err == nil && q.Limit() == (layer.Usage{}) { // it was lost, or its setter killed
		q.SetLimit(r.Limit.usage())
	}
	return q, err
}

// attach has an open filesystem count where the record of its fork says.
func (b *backend) setQuota(f *layer.FS, r *record) error {
	if r.Limit == nil {
		return f.SetQuota(nil, nil)
	}
	q, err := b.quota(r)
	if err != nil {
		return err
	}
	if err := f.SetQuota(q, b.layerPaths(r)); err != nil {
		q.Close()
		return err
	}
	return b.chargeLayers(r, func(path string) bool { return !f.HasLayer(path) }) // what was merged since
}

// Gauge keeps the contract of [snapshot.Gauge].
func (b *backend) Gauge(_ context.Context, fork snapshot.ForkID) (used snapshot.DiskLimit, err error) {
	r, err := b.fork(fork)
	if err == nil && r.Limit == nil {
		err = because(errs.ErrNotSupported, b.forkPath(fork), "it has no limit")
	}
	if err == nil {
		var q *layer.Quota
		if q, err = b.quota(&r); err == nil {
			u := q.Used()
			used = snapshot.DiskLimit{Bytes: snapshot.Bytes(u.Bytes), Inodes: u.Inodes}
			q.Close()
		}
	}
	return used, fail("measuring", string(fork), err)
}

// sweepQuotas removes the quotas that no fork names, and has the others forget the layers
// that have gone. The caller holds the lock exclusively.
func (b *backend) sweepQuotas(named map[string]bool, layers []string) error {
	entries, err := os.ReadDir(b.dir + "/quotas")
	if notExist(err) {
		return nil
	}
	for _, e := range entries {
		path := b.quotaPath(e.Name())
		if !named[e.Name()] {
			err = errors.Join(err, os.Remove(path))
			continue
		}
		if q, damaged := layer.OpenQuota(path); damaged == nil { // or who opens it says so
			q.Retain(layers)
			q.Close()
		}
	}
	return err
}
