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
	"github.com/snapfs/snapfs/internal/run"
)

// Drivers lists the drivers of all backends, best first. The first that accepts a tree is chosen, except for
// plain, which copies every file and must be named. notice reports a problem of the program snapfs-fuse to
// the user, as in [run.Beside].
func Drivers(notice func(text string)) []snapshot.Driver {
	server := func() ([]string, error) { return run.Beside("snapfs-fuse", notice) }
	return []snapshot.Driver{
		pool.Driver(), btrfs.Driver(), zfs.Driver(), zfsuser.Driver(server), overlay.Driver(), overlayquota.Driver(),
		overlayfuse.Driver(server), fusecow.Driver(server), plain.Driver(),
	}
}
