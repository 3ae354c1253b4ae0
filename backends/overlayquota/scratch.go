//go:build linux

package overlayquota

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/qgroup"
	"github.com/snapfs/snapfs/internal/subvol"
)

// kin returns the part of a fork's id that all forks of one sandbox have in common. The names of their layers
// begin with it; by that part the scratch directory, the sandbox's /tmp, is found.
func kin(id string) string {
	id, _, _ = strings.Cut(id, "-")
	return id
}

func (g *poolStorage) scratch(kin string) string { return filepath.Join(g.dir, "scratch", kin) }

// openScratch opens the scratch directory (the /tmp) of the sandbox whose fork writes to the layer; nil if it
// has none. The caller closes it.
func (g *poolStorage) openScratch(layer string) (*os.File, error) {
	dir, err := os.Open(g.scratch(kin(filepath.Base(filepath.Dir(layer)))))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // most forks have none
	}
	return dir, err
}

// Scratch returns the path of a directory to use as the sandbox's /tmp, for [snapshot.TmpProvider]. It is a
// subvolume in the quota group of the fork, so that the disk limit includes it.
func (b *Backend) Scratch(ctx context.Context, fork snapshot.ForkID) (string, error) {
	layer, err := b.LayerOf(fork)
	if err != nil {
		return "", err
	}
	path, err := b.storage.makeScratch(ctx, layer, kin(string(fork)))
	return path, failed("making scratch space for", layer, err)
}

func (g *poolStorage) makeScratch(ctx context.Context, layer, kin string) (string, error) {
	path := g.scratch(kin)
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return "", err
		}
		if err := g.Make(path); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
	}
	if err := os.Chmod(path, 0o777|os.ModeSticky); err != nil {
		return "", err
	}
	return path, g.inheritGroup(ctx, layer, path)
}

// sweepScratch deletes the scratch directories (the /tmp) of removed forks. A fork's record is written before
// its scratch directory is made, so none of a living fork is deleted.
func (g *poolStorage) sweepScratch() error {
	dir, err := os.Open(filepath.Join(g.dir, "scratch"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil || len(names) == 0 {
		return err
	}
	forks, err := os.ReadDir(filepath.Join(g.dir, "forks"))
	if err != nil {
		return err
	}
	alive := map[string]bool{}
	for _, f := range forks {
		alive[kin(f.Name())] = true
	}
	var errs []error
	for _, name := range names {
		if alive[name] {
			continue
		}
		// A sandbox with this /tmp may have made subvolumes in it.
		err := subvol.Remove(int(dir.Fd()), name, func(int) error { return nil })
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// inheritGroup puts the subvolume next into the btrfs quota groups of the subvolume old, so that the same
// limit applies.
func (g *poolStorage) inheritGroup(ctx context.Context, old, next string) error {
	from, err := os.Open(old)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.Open(next)
	if err != nil {
		return err
	}
	defer to.Close()
	top, err := os.Open(g.dir)
	if err != nil {
		return err
	}
	defer top.Close()
	info, err := btrfs.Info(int(from.Fd()))
	if err != nil {
		return err
	}
	groups, err := qgroup.Of(int(top.Fd()), info.ID)
	for _, group := range groups {
		if err == nil {
			err = qgroup.Join(ctx, int(top.Fd()), int(to.Fd()), group)
		}
	}
	return err
}
