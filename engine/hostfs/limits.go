package hostfs

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/limits"
)

// canLimit returns nil if a backend can limit the disk space and inodes of its forks to l, or an error with
// the reason.
func canLimit(ctx context.Context, b snapshot.Backend, l snapshot.DiskLimit) error {
	p, ok := b.(snapshot.Limiter)
	if !ok {
		return ErrUnlimited()
	}
	return p.CanLimit(ctx, l)
}

// DiskLimit returns those of a sandbox's limits that concern disk space and inodes, in the form that backends
// need.
func DiskLimit(l catalog.Limits) snapshot.DiskLimit {
	return snapshot.DiskLimit{Bytes: snapshot.Bytes(l.Disk), Inodes: l.Inodes}
}

// LimitsDisk reports whether the limits of a sandbox restrict its disk space or inodes.
func LimitsDisk(l catalog.Limits) bool { return l.Disk != 0 || l.Inodes != 0 }

// tmpLimits returns the mount options that bound each tmpfs of a sandbox by its limits of disk and memory.
// They leave a tmpfs at least 1 MiB and 256 inodes for files of snapfs itself.
func tmpLimits(l catalog.Limits) (options []string) {
	size := l.Disk
	if size == 0 || l.Memory > 0 && l.Memory < size {
		size = l.Memory
	}
	if size > 0 {
		options = append(options, "size="+strconv.FormatInt(max(size, 1<<20), 10))
	}
	if l.Inodes > 0 {
		options = append(options, "nr_inodes="+strconv.FormatInt(l.Inodes+256, 10))
	}
	return options
}

// LimitsIO reports whether the limits of a sandbox restrict the rate of disk reads or writes.
func LimitsIO(l catalog.Limits) bool {
	return l.ReadRate != 0 || l.WriteRate != 0 || l.ReadOps != 0 || l.WriteOps != 0
}

// ErrServed returns the error for a sandbox with I/O limits whose backend has a server process. That process
// does the I/O outside of the sandbox, where the limits do not apply.
func ErrServed() error {
	return fmt.Errorf("a server process outside of the sandbox does its I/O, to which I/O limits do not apply: %w", errs.ErrNotSupported)
}

// ErrUnlimited returns the error for a sandbox with a disk limit whose backend cannot enforce one, with hints
// for another backend.
func ErrUnlimited() error {
	return &errs.Error{
		Op: "limiting the disk", Kind: errs.ErrNotSupported,
		Err: errors.New("the backend has no disk limits"),
		Hints: []string{
			"snapfs pool create && snapfs pool import TREE",
			"snapfs run --backend overlay … (on an ext4 or xfs with project quotas)",
		},
	}
}

// ForProcesses returns those limits of a sandbox that control groups and rlimits enforce on its processes, in
// the form of package limits.
func ForProcesses(l catalog.Limits) limits.Limits {
	return limits.Limits{
		CPUs: l.CPUs, Memory: l.Memory, PIDs: l.PIDs, Files: l.Files, CPUTime: l.CPUTime,
		ReadRate: l.ReadRate, WriteRate: l.WriteRate, ReadOps: l.ReadOps, WriteOps: l.WriteOps,
	}
}
