package snapshot

import "context"

// A DiskLimit is the most disk space and the most inodes that the processes of a sandbox may add to its fork
// beyond the base.
type DiskLimit struct {
	// Bytes limits the space, in whole filesystem blocks, of data written in the fork since it was
	// forked: new files, overwritten parts of base files (or the whole file, see [Facts.Unit]),
	// preallocated space, and the filesystem's own metadata for them where the filesystem counts
	// it. Deleted data and holes do not count. 0: no limit.
	Bytes Bytes
	// Inodes limits the number of new files, directories and other inodes, and of base inodes that
	// were copied to be changed. 0: no limit.
	Inodes int64
	// Share names a group of forks with one common limit: forks of one backend, or of several
	// with the same [Limiter.LimitPlace]. "": the limit is for this fork alone.
	Share string
}

// A Limiter is a backend that can enforce a [DiskLimit], the most space and inodes that a fork adds to its
// base, also against root in the sandbox.
type Limiter interface {
	// CanLimit reports whether any fork of this backend could be limited to l by this process now: nil means
	// that LimitFork would succeed. Only whether Bytes and Inodes are zero matters, not their values; the
	// zero DiskLimit is always possible. It changes nothing. Cost: some system calls. Errors:
	// errs.ErrNotSupported, whose text names the missing condition and whose Hints are the remedy.
	CanLimit(ctx context.Context, l DiskLimit) error
	// LimitFork replaces the disk limit of the fork by l; the zero DiskLimit removes every limit.
	//
	// The limit holds for each write that begins after LimitFork has returned, in a fork with a live base
	// too, and through every view. A write past the limit is short or fails with ENOSPC or EDQUOT. A fork
	// never takes more than its limit, and can fill all of it but 1 % and 1 MiB. Deleted space can be written
	// again after the filesystem's next commit at the latest. A limit below the present use is no error:
	// nothing is deleted, and writes fail until the use is below it.
	//
	// The limit lasts until the fork is removed, across reboots too. Seal does not reset the count: data that
	// the fork and a snapshot share counts until both have been removed. A fork of a snapshot starts without
	// a limit, and the content of its base costs it nothing.
	//
	// Atomic and repeatable; after an error the old limit holds. Cost: under a millisecond, and some
	// microseconds for each subvolume nested in the fork, or for each file written in the fork on backends
	// that label files. Errors: errs.ErrNotFound, errs.ErrCorrupt, those of CanLimit, errs.ErrDenied.
	LimitFork(ctx context.Context, fork ForkID, l DiskLimit) error
	// LimitPlace returns the name of the counter that several forks with one common disk limit count in, or
	// "" if each fork has a limit of its own. Forks of backends with equal LimitPlace share a limit if they
	// were limited with equal [DiskLimit.Share]; the limit set last holds for all of them.
	//
	// Each fork counts from its LimitFork on. After its removal its data still counts as long as a snapshot
	// shares the data and another fork has the limit. Cost: some system calls.
	LimitPlace() string
	// Gauge returns how many bytes and inodes count at present towards the limit of the fork, including those
	// of all forks that share the limit. If one of the two is not limited, it is not counted and 0. Cost:
	// reading some kernel files. Errors: errs.ErrNotFound (no such fork), errs.ErrNotSupported (the fork has
	// no limit).
	Gauge(ctx context.Context, fork ForkID) (DiskLimit, error)
}
