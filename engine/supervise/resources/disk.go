package resources

import (
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/internal/units"
)

// diskFullMargin is how many bytes of a sandbox's disk limit may be unused while the limit already counts as reached:
// a filesystem needs more than that for a new file.
const diskFullMargin = 256 << 10

// full returns the disk or the inode limit of the sandbox if its files use it up, or nil.
func (a *Resources) full() *catalog.LimitHit {
	if a.Disk == nil || !hostfs.LimitsDisk(a.limits) {
		return nil
	}
	used, known := a.Disk()
	switch {
	case !known:
	case a.limits.Disk > 0 && int64(used.Bytes) > a.limits.Disk-diskFullMargin:
		return &catalog.LimitHit{
			Limit: "disk", Value: units.FormatSize(a.limits.Disk), Text: "disk: " + units.SizeText(a.limits.Disk) + " used up", When: time.Now(),
		}
	case a.limits.Inodes > 0 && used.Inodes >= a.limits.Inodes:
		return &catalog.LimitHit{
			Limit: "inodes", Value: units.FormatCount(a.limits.Inodes), Text: "inodes: " + units.FormatCount(a.limits.Inodes) + " used up", When: time.Now(),
		}
	}
	return nil
}

// diskUsage adds to u the disk space and inodes that the sandbox uses, if they are limited, and the limits.
func (a *Resources) diskUsage(u *Usage) {
	a.mu.Lock()
	l := a.limits
	a.mu.Unlock()
	if a.Disk == nil || !hostfs.LimitsDisk(l) {
		return
	}
	used, known := a.Disk()
	if n := int64(used.Bytes); known && l.Disk > 0 {
		u.Disk, u.DiskLimit = &n, &l.Disk
	}
	if known && l.Inodes > 0 {
		u.Inodes, u.InodesLimit = &used.Inodes, &l.Inodes
	}
}
