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
	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/quota"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/mount"
	"golang.org/x/sys/unix"
)

var _ snapshot.Limiter = (*backend)(nil)

// A limit is the disk limit in a fork's record: its values, and the name of the file in quotas/ that counts
// the usage of its layers. If forks share the file, the limit set last applies to all of them.
type limit struct {
	Bytes  int64  `json:"bytes,omitempty"`
	Inodes int64  `json:"inodes,omitempty"`
	Quota  string `json:"quota"`
}

func (l *limit) usage() quota.Usage { return quota.Usage{Bytes: l.Bytes, Inodes: l.Inodes} }

func (b *backend) quotaPath(name string) string { return b.dir + "/quotas/" + name }

// quotaName returns the name of the file that counts the disk usage of the fork id: one for all forks with
// the same l.Share, or the fork's own if l.Share is "".
func quotaName(id snapshot.ForkID, l snapshot.DiskLimit) string {
	if l.Share == "" {
		return "fork-" + string(id)
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, l.Share) // never fails
	return fmt.Sprintf("share-%x", h.Sum64())
}

// LimitPlace returns the name under which forks can share a disk limit, for [snapshot.Limiter]: that of this
// backend and its directory. Forks of backends with the same name count in one file.
func (b *backend) LimitPlace() string { return name + " " + b.dir }

// CanLimit returns the reason why a fork cannot have the disk limit l, or nil, for [snapshot.Limiter]. Any
// user can limit bytes and inodes, if the filesystem reports immediately how much space a file occupies.
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
		return because(errs.ErrNotSupported, b.dir, "zfs, the filesystem of the layers, reports the space of a file only seconds later",
			"snapfs run --backend zfs …", "SNAPFS_HOME=/a/directory/elsewhere snapfs …")
	}
	return nil
}

// LimitFork sets or removes the disk limit of a fork, for [snapshot.Limiter]. Writes beyond the limit fail
// with EDQUOT, writes to a mapped page when it is written back. The log of changed names counts where it
// grows; removing files needs no space. Space preallocated beyond the end of a file counts.
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
	unlock, err := b.lock(ctx, unix.LOCK_SH) // keeps a sweep from removing the quota before the record names it
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
	q, err := quota.Open(b.quotaPath(next.Limit.Quota))
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

// unlimit removes the disk limit from the record r of the fork id. Forks that shared the limit keep it.
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

// dropQuota removes the file that counts the usage for the limit l, if it is the fork's own and not shared. A
// sweep removes a leftover.
func (b *backend) dropQuota(id snapshot.ForkID, l *limit) {
	if l != nil && l.Quota == quotaName(id, snapshot.DiskLimit{}) {
		_ = os.Remove(b.quotaPath(l.Quota))
	}
}

// unchargeFork subtracts the writable layer of the removed fork id from the disk usage that its limit counts,
// since other forks may share the limit.
func (b *backend) unchargeFork(id snapshot.ForkID, r *record) {
	b.unchargeTop(r)
	b.dropQuota(id, r.Limit)
}

// unchargeLayers subtracts from a fork's disk usage its own layers in the record dropped that its valid
// record, current, does not have. A return to a snapshot makes a second record, and one of the two is
// dropped.
func (b *backend) unchargeLayers(dropped, current *record) {
	if dropped.Limit == nil {
		return
	}
	q, err := b.quota(dropped)
	if err != nil { // a sweep does it later
		return
	}
	defer q.Close()
	for _, l := range dropped.Layers[dropped.Own:] {
		if !slices.Contains(current.Layers[current.Own:], l) {
			_ = q.SetUsage(b.layerPath(l), quota.Usage{})
		}
	}
}

// unchargeTop subtracts the topmost layer of the fork with record r from the disk usage in the quota file
// that r names, if any.
func (b *backend) unchargeTop(r *record) {
	if r.Limit == nil {
		return
	}
	if q, err := b.quota(r); err == nil { // or a sweep does it later
		_ = q.SetUsage(b.layerPath(r.upper()), quota.Usage{})
		q.Close()
	}
}

// relimit replaces the fork's record was by next, which has another disk limit, and charges its layers to
// that. After an error the fork has its old record. The caller holds the fork's lock.
func (b *backend) relimit(ctx context.Context, id snapshot.ForkID, was, next record) error {
	if err := fault.Point(ctx, "write the limit"); err != nil {
		return err
	}
	if err := b.replace(b.forkPath(id), &next); err != nil {
		return err
	}
	if was.Limit != nil && next.Limit != nil && was.Limit.Quota == next.Limit.Quota {
		return nil
	}
	err := fault.Point(ctx, "charge the new quota")
	if err == nil {
		err = b.recharge(ctx, &next)
	}
	if err != nil {
		err = errors.Join(err, b.replace(b.forkPath(id), &was), b.recharge(context.WithoutCancel(ctx), &was))
	}
	return err
}

// recharge counts the layers of a fork in the quota file that its record names: the fork's server does it, or
// else recharge reads the logs.
func (b *backend) recharge(ctx context.Context, r *record) error {
	return b.retryBusy(ctx, b.layerPath(r.upper()), func() (again bool, err error) {
		if _, err = b.requestLayer(r.upper(), request{Recount: true}); !errors.Is(err, errNotServed) {
			return errors.Is(err, unix.EBUSY), err
		}
		clean, release, err := logfile.TryLock(b.layerPath(r.upper()))
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

// chargeLayers counts the disk usage of a fork's own layers in its quota file, by reading their logs. It
// skips those for which unserved returns false: the fork's server counts them.
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
		u, err := quota.OfLayer(b.layerPath(l), r.index(r.Own+i))
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

// quota opens the quota file that a fork's record names, which the caller closes. If the file has lost its
// limit, quota sets that of the record.
func (b *backend) quota(r *record) (*quota.Quota, error) {
	q, err := quota.Open(b.quotaPath(r.Limit.Quota))
	if err == nil && q.Limit() == (quota.Usage{}) { // the file was lost, or the process that set it was killed
		q.SetLimit(r.Limit.usage())
	}
	return q, err
}

// setQuota makes the open filesystem f, of a fork with the record r, count its disk usage in the quota file
// that r names.
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
	return b.chargeLayers(r, func(path string) bool { return !f.HasLayer(path) }) // layers that were merged since f was opened
}

// Gauge returns the bytes and inodes that count for the disk limit of a fork now, for [snapshot.Limiter].
func (b *backend) Gauge(_ context.Context, fork snapshot.ForkID) (used snapshot.DiskLimit, err error) {
	r, err := b.fork(fork)
	if err == nil && r.Limit == nil {
		err = because(errs.ErrNotSupported, b.forkPath(fork), "the fork has no limit")
	}
	if err == nil {
		var q *quota.Quota
		if q, err = b.quota(&r); err == nil {
			u := q.Used()
			used = snapshot.DiskLimit{Bytes: snapshot.Bytes(u.Bytes), Inodes: u.Inodes}
			q.Close()
		}
	}
	return used, fail("measuring", string(fork), err)
}

// sweepQuotas removes quota files (counters of disk usage) that no fork uses; named are the names of those in
// use. In the others it removes the counters of layers that are not in layers, the names of those that forks
// with a limit have. The caller holds the lock exclusively.
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
		if q, damaged := quota.Open(path); damaged == nil { // opening a damaged one reports it
			q.Retain(layers)
			q.Close()
		}
	}
	return err
}
