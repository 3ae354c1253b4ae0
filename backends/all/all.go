// Package all is the explicit list of backends. Nothing registers itself: a
// backend is in snapfs when it stands here.
package all

import (
	"slices"

	"github.com/snapfs/snapfs/backends/btrfs"
	"github.com/snapfs/snapfs/backends/overlay"
	"github.com/snapfs/snapfs/backends/plain"
	"github.com/snapfs/snapfs/backends/pool"
	"github.com/snapfs/snapfs/backends/quota"
	"github.com/snapfs/snapfs/backends/zfs"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// Drivers lists all backends, best first. The first that can hold a tree holds
// it; plain, which copies every file, only where it is asked for. Built with the tag
// fusecow, the program has that one too.
func Drivers() []snapshot.Driver {
	best := []snapshot.Driver{pool.Driver(), btrfs.Driver(), zfs.Driver(), overlay.Driver()}
	return slices.Concat(best, served(), []snapshot.Driver{quota.Driver(), plain.Driver()})
}
