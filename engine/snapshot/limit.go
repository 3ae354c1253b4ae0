package snapshot

import "context"

// A DiskLimit is the most that a fork may hold beyond its base.
type DiskLimit struct {
	// Bytes, in whole blocks of the filesystem, of what was written in the fork
	// since it was forked and still takes up space: new files, overwritten parts of
	// files of the base (the whole file where [Facts.Unit] says so), space that was
	// allocated ahead, and where the filesystem counts it, its own records of them.
	// Holes are free. 0: no limit.
	Bytes Bytes
	// Inodes are new files, directories and other nodes, and those of the base
	// that had to be copied to be changed. 0: no limit.
	Inodes int64
	// Share names forks that hold the limit all together, of one backend or of
	// several that are the same [Sharer]; "": the fork alone.
	Share string
}

// A Sharer can hold several forks to one limit. A backend that has it is a [Limiter].
type Sharer interface {
	// LimitPlace names where what is added is counted. Forks of backends with the
	// same answer share a limit when they are limited with the same
	// [DiskLimit.Share]: each counts from then on, and what it has added stays
	// counted after its removal, as long as a snapshot shares it and another fork
	// has the limit. The one that is set last holds for all. It costs nothing.
	LimitPlace() string
}

// A Gauge tells how much of its limit is used up.
type Gauge interface {
	// Gauge is what counts now for the limit of the fork, with all that share it;
	// what is not counted is 0. Cost: some files of the kernel read. Errors:
	// errs.ErrNotFound (no such fork), errs.ErrNotSupported (it has no limit).
	Gauge(ctx context.Context, fork ForkID) (DiskLimit, error)
}

// A Limiter holds a fork to a [DiskLimit], whatever runs in it, as root or not.
// A backend that has it is a [LimitProber] too.
type Limiter interface {
	// LimitFork gives the fork this limit in the place of the one it has; the zero
	// DiskLimit takes every limit away. It is in force for each write that begins
	// after it returns, on a live fork too, through whatever view: one that would
	// lead past it is cut short or fails, with ENOSPC or EDQUOT, and what is
	// written then is less than the limit by 1 % and 1 MiB at most, and never more
	// than it. What was deleted can be written again, at the latest after the
	// filesystem's next commit. A limit below what the fork holds already is no
	// error: nothing of it goes, and nothing is added until it is below.
	//
	// The limit stays with the fork until that is removed, over reboots too. Sealing
	// does not renew it: what the fork wrote before, and a snapshot keeps, counts
	// until both have gone, where they share it. A fork of a snapshot has no limit,
	// and what its base holds costs it nothing.
	//
	// Atomic, and repeatable. Cost: under a millisecond, and some microseconds for
	// each subvolume nested in the fork, or on backends that mark each file that the
	// fork wrote, for each of those. After an error the limit is what it was.
	// Errors: errs.ErrNotFound, errs.ErrCorrupt, those of [LimitProber], errs.ErrDenied.
	LimitFork(ctx context.Context, fork ForkID, l DiskLimit) error
}

// A LimitProber says beforehand whether its forks can be limited, so that a
// backend can be chosen by that.
type LimitProber interface {
	// CanLimit answers nil where [Limiter.LimitFork] can hold any fork of this
	// backend to l, now, in this process: either part of it, or both where both are
	// set. The numbers do not matter but for being zero, and the zero DiskLimit is
	// always possible. It changes nothing, and costs some system calls.
	// Errors: errs.ErrNotSupported, whose text says what would have to be true and whose
	// Hints mend it.
	CanLimit(ctx context.Context, l DiskLimit) error
}
