//go:build linux

package store

import "github.com/snapfs/snapfs/engine/snapshot"

// TreeDir is the name of the directory in a layer that holds its content. The name also marks the layer as
// one of this backend, and is its format version.
const TreeDir = "snapfs-1"

// SnapshotPath returns the path of the file with the [Record] of the snapshot id.
func (s *Store) SnapshotPath(id snapshot.ID) string { return s.Dir + "/snapshots/" + string(id) }

// ForkPath returns the path of the file with the [Record] of the fork id.
func (s *Store) ForkPath(id snapshot.ForkID) string { return s.Dir + "/forks/" + string(id) }

// LayerPath returns the path of the directory of a layer, which holds the layer's content and notes about it.
// layer is its name in a [Record].
func (s *Store) LayerPath(layer string) string { return s.Dir + "/layers/" + layer }

// TreePath returns the directory with the content of a layer: overlayfs's upperdir or one of
// its lowerdirs.
func (s *Store) TreePath(layer string) string {
	return s.LayerPath(layer) + s.Inner() + "/" + TreeDir
}

// WorkPath returns the directory that overlayfs uses as workdir when it mounts a layer as the upper one.
func (s *Store) WorkPath(layer string) string { return s.LayerPath(layer) + s.Inner() + "/work" }

// AttrPrefix returns the prefix of the names of overlayfs's own extended attributes in these layers:
// "trusted.overlay." for root, "user.overlay." for others.
func (s *Store) AttrPrefix() string {
	if s.UserXattr {
		return "user.overlay."
	}
	return "trusted.overlay."
}
