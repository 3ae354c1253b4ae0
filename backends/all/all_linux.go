package all

import (
	"github.com/snapfs/snapfs/backends/btrfs"
	"github.com/snapfs/snapfs/backends/fusecow"
	"github.com/snapfs/snapfs/backends/overlay"
	"github.com/snapfs/snapfs/backends/overlayfuse"
	"github.com/snapfs/snapfs/backends/overlayquota"
	"github.com/snapfs/snapfs/backends/plain"
	"github.com/snapfs/snapfs/backends/pool"
	"github.com/snapfs/snapfs/backends/zfs"
	"github.com/snapfs/snapfs/backends/zfsuser"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// Drivers lists the drivers of all backends, best first. The first that accepts a tree is chosen, except for
// plain, which copies every file and must be named.
var Drivers = []snapshot.Driver{
	pool.Driver, btrfs.Driver, zfs.Driver, zfsuser.Driver, overlay.Driver, overlayquota.Driver,
	overlayfuse.Driver, fusecow.Driver, plain.Driver,
}
