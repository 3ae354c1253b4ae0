package hostfs

import (
	"context"
	"errors"
	"fmt"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/limits"
)

// canLimit says why a backend cannot hold its forks to a limit, or nil.
func canLimit(ctx context.Context, b snapshot.Backend, l snapshot.DiskLimit) error {
	p, ok := b.(snapshot.Limiter)
	if !ok {
		return ErrUnlimited()
	}
	return p.CanLimit(ctx, l)
}

func DiskLimit(l catalog.Limits) snapshot.DiskLimit {
	return snapshot.DiskLimit{Bytes: snapshot.Bytes(l.Disk), Inodes: l.Inodes}
}

func LimitsDisk(l catalog.Limits) bool { return DiskLimit(l) != (snapshot.DiskLimit{}) }

// LimitsIO: what processes read from disks and write to them is limited.
func LimitsIO(l catalog.Limits) bool {
	return l.ReadRate != 0 || l.WriteRate != 0 || l.ReadOps != 0 || l.WriteOps != 0
}

// ErrServed: of no use where what is read and written is limited.
func ErrServed() error {
	return fmt.Errorf("a process outside of the sandbox reads and writes for it, which no limit on that holds: %w", errs.ErrNotSupported)
}

func ErrUnlimited() error {
	return &errs.Error{
		Op: "limiting the disk", Kind: errs.ErrNotSupported,
		Err: errors.New("it cannot limit what a sandbox writes"), Hints: []string{"snapfs pool create"},
	}
}

// ForProcesses is the part of the limits that is about processes.
func ForProcesses(l catalog.Limits) limits.Limits {
	return limits.Limits{
		CPUs: l.CPUs, Memory: l.Memory, PIDs: l.PIDs, Files: l.Files, CPUTime: l.CPUTime,
		ReadRate: l.ReadRate, WriteRate: l.WriteRate, ReadOps: l.ReadOps, WriteOps: l.WriteOps,
	}
}

func LimitsFit(l catalog.Limits) error {
	return ForProcesses(l).Check()
}
