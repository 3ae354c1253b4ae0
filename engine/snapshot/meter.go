package snapshot

import "context"

// A Meter is a backend that can measure the disk space that only certain snapshots hold, which
// becomes free when they are removed.
type Meter interface {
	// MeasureExclusive returns, for each i, the bytes of disk space that only the snapshots ids[i:] hold: what
	// remains to be freed after the removal of ids[:i]. Space that a fork, another snapshot or the real tree
	// shares does not count. The result has as many elements as ids. An empty id, and one that does not
	// exist, holds nothing.
	//
	// Without ids it only reports whether this process can measure. Cost: in proportion to the number of
	// snapshots of the backend, and to the files and extents that were written in the state of the snapshots
	// ids; to all of their files if Facts.CopiesWhole. Where blocks can be shared, the files of other snapshots
	// and forks may count too. Errors: errs.ErrNotSupported (this process, or this tree, cannot be measured), errs.ErrInterrupted.
	MeasureExclusive(ctx context.Context, ids []ID) ([]Bytes, error)
}

// SumExclusive returns the result of [Meter.MeasureExclusive] for n snapshots from pieces of disk space: each
// calls its argument with the size of a piece and the index of the last snapshot that shares it.
func SumExclusive(n int, each func(add func(size Bytes, last int))) []Bytes {
	held := make([]Bytes, n)
	each(func(size Bytes, last int) { held[last] += size })
	for i := n - 2; i >= 0; i-- {
		held[i] += held[i+1]
	}
	return held
}
