//go:build linux

package overlay

import "github.com/snapfs/snapfs/engine/snapshot"

// treeDir is the directory of a layer that holds its tree. The name is the ownership mark of a
// layer, and the version of its content.
const treeDir = "snapfs-1"

func (s *store) snapshotPath(id snapshot.ID) string { return s.dir + "/snapshots/" + string(id) }

func (s *store) forkPath(id snapshot.ForkID) string { return s.dir + "/forks/" + string(id) }

func (s *store) layerPath(layer string) string { return s.dir + "/layers/" + layer }

func (s *store) treePath(layer string) string {
	return s.layerPath(layer) + s.inner() + "/" + treeDir
}

func (s *store) workPath(layer string) string { return s.layerPath(layer) + s.inner() + "/work" }

// attr returns the full name of one of overlayfs's own attributes.
func (s *store) attr(short string) string {
	if s.userXattr {
		return "user.overlay." + short
	}
	return "trusted.overlay." + short
}
