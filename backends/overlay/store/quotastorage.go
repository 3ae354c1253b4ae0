//go:build linux

package store

import (
	"context"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// A QuotaStorage stores layers and limits their size by a means of its own, for filesystems
// without project quotas. The tree and work directory of a layer are then in its subdirectory
// "held", which the storage makes. The layer's notes are beside that subdirectory, so that
// they can be written when it is full.
type QuotaStorage interface {
	// Make makes an empty directory at path for the content of an upper layer, to whose size a limit can be
	// set.
	Make(path string) error
	// Destroy deletes the entry name of the directory dir, with its content, if Make made it. It reports
	// whether it did.
	Destroy(dir int, name string) (bool, error)
	// CanLimit returns the reason why forks cannot have the disk limit l, or nil; Limit sets that limit for a
	// fork, whose upper layer is the directory layer. They do the work of the methods of [snapshot.Limiter].
	CanLimit(l snapshot.DiskLimit) error
	Limit(ctx context.Context, layer string, l snapshot.DiskLimit) error
	// InheritLimit applies the disk limit of the layer old also to the new, empty layer next of the same
	// fork.
	InheritLimit(old, next string) error
	// Swept removes leftovers of the storage itself, such as limits that no layer has any more. The backend
	// calls it after a sweep has deleted all removed layers.
	Swept() error
}

// Inner returns the path, relative to the directory of a layer, of the directory that the QuotaStorage makes
// for the layer's content; "" without a QuotaStorage.
func (s *Store) Inner() string {
	if s.Storage == nil {
		return ""
	}
	return "/held"
}
