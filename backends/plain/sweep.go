package plain

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapfs/snapfs/internal/trash"
)

const (
	newborn = "new-"      // a new entry in the trash
	infancy = time.Minute // a new entry of this age is not swept
)

// Sweep deletes removed snapshots and forks in the trash, for [snapshot.Backend]. It rests for as long as it
// works, so that it uses at most half of the disk's time. It continues after an entry that cannot be deleted,
// and returns the error at the end.
func (b *backend) Sweep(ctx context.Context) error {
	young := func(name string) bool {
		info, err := os.Lstat(filepath.Join(b.trash(), name))
		return err != nil || strings.HasPrefix(name, newborn) && time.Since(info.ModTime()) < infancy
	}
	return fail("sweeping", "", trash.Empty(ctx, b.trash(), trash.Options{Skip: young}))
}

// Pending reports whether Sweep has work, for [snapshot.Backend]. It always returns true, because every
// removal leaves a tree in the trash.
func (b *backend) Pending() bool { return true }
