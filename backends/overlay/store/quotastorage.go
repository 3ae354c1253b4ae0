//go:build linux

package store

import (
	"context"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// A QuotaStorage is a storage of layers that can limit their size by means of its own, for filesystems
// without project quotas. With it, the tree and the work directory of a layer are in a subdirectory
// of the layer, "held", which the storage provides. The notes of the layer are beside that
// subdirectory, so that they can be written while it is full.
type QuotaStorage interface {
	// Make makes an empty directory for an upper layer.
	Make(path string) error
	// Destroy deletes such a directory with its content, and reports whether name was one.
	Destroy(dir int, name string) (bool, error)
	// CanLimit and Limit are [snapshot.Limiter] and [snapshot.Limiter] for the directory of a
	// fork's upper layer.
	CanLimit(l snapshot.DiskLimit) error
	Limit(ctx context.Context, layer string, l snapshot.DiskLimit) error
	// InheritLimit applies the limit of the layer old to the new, empty layer next as well.
	InheritLimit(old, next string) error
	// Swept is called after a sweep has deleted all removed layers.
	Swept() error
}

// Inner is the path of the storage's directory relative to the directory of a layer.
func (s *Store) Inner() string {
	if s.Storage == nil {
		return ""
	}
	return "/held"
}

// makeInner makes the storage's directory of a layer.
func (s *Store) makeInner(layer string) error {
	if s.Storage == nil {
		return nil
	}
	return s.Storage.Make(s.LayerPath(layer) + s.Inner())
}
