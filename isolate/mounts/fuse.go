//go:build linux

package mounts

import (
	"context"
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A fuseTree is a tree of a container whose ids a FUSE process maps, because its filesystem does not support
// id-mapped mounts.
type fuseTree struct {
	target string
	root   *os.File // root of the FUSE mount
	// layer is the mount if the tree is a layer of an overlay, and key identifies that layer.
	layer *os.File
	key   layerKey
}

// A layerKey identifies a directory that a FUSE process shows with mapped ids: by its path alone, or as layer
// number served of the overlay that is mounted at target.
type layerKey struct {
	path, target string
	served       int
}

// maxFUSERead is the largest read, in bytes, that a FUSE request may make. It equals idmap.MaxRead, whose
// package this program does not link.
const maxFUSERead = 1 << 20

// mapByFUSE mounts the directory path with mapped ids through [Spec.MapIDs], a FUSE process, for the mount at
// target, with the MOUNT_ATTR_* flags attr; the caller closes the detached mount. why is the reason that path
// cannot be id-mapped, and the error if MapIDs is nil.
func (pl *Planner) mapByFUSE(ctx context.Context, target, path string, attr uint64, why error) (*os.File, error) {
	if pl.Spec.MapIDs == nil {
		return nil, why
	}
	tree, err := Mapped(path, attr&unix.MOUNT_ATTR_RDONLY, nil) // without the mounts below it
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	return pl.serveMapped(ctx, target, tree, attr, why)
}

// serveMapped starts a FUSE process that shows tree, the root of a mount for the container's path target,
// with mapped ids. It returns its detached mount, with the MOUNT_ATTR_* flags attr, which the caller closes.
// why is part of the error if FUSE is not available.
func (pl *Planner) serveMapped(ctx context.Context, target string, tree *os.File, attr uint64, why error) (*os.File, error) {
	fuse, mount, err := mount.NewFUSE(mount.FUSEOptions{Subtype: "snapfs-shift", Others: true, MaxRead: maxFUSERead}, attr)
	if err != nil {
		return nil, errors.Join(why, err)
	}
	dev := os.NewFile(uintptr(fuse.Dev), "/dev/fuse")
	err = pl.Spec.MapIDs(ctx, dev, tree, pl.Spec.IDs.Base)
	dev.Close() // the FUSE process has its own descriptor
	var root *os.File
	if err == nil {
		root, err = vfs.OpenDir(int(mount.Fd()), ".") // waits until the FUSE process replies
	}
	if err != nil {
		mount.Close()
		return nil, err
	}
	pl.fuseTrees = append(pl.fuseTrees, fuseTree{target: target, root: root})
	return mount, nil
}

// layerByFUSE mounts the directory path, a layer of the overlay at target, with ids that a FUSE
// process maps. Later calls return the same mount, which the planner closes.
func (pl *Planner) layerByFUSE(ctx context.Context, target, path string, why error) (*os.File, error) {
	key := layerKey{path: path}
	if m := pl.fuseLayer(key); m != nil {
		return vfs.Duplicate(m)
	}
	m, err := pl.mapByFUSE(ctx, target, path, unix.MOUNT_ATTR_RDONLY, why)
	if err != nil {
		return nil, err
	}
	return pl.recordLayer(key, m)
}

// recordLayer records m, the mount that serveMapped has just made, as the mount of the layer key, for later
// calls. The planner closes m; the caller closes the returned duplicate.
func (pl *Planner) recordLayer(key layerKey, m *os.File) (*os.File, error) {
	s := &pl.fuseTrees[len(pl.fuseTrees)-1]
	s.key, s.layer = key, m
	pl.CloseLater = append(pl.CloseLater, m)
	return vfs.Duplicate(m)
}

// fuseLayer returns the mount that layerByFUSE or base made earlier for the overlay layer key, in which a
// FUSE process maps the user and group ids because the kernel cannot; nil if there is none. The planner
// closes the mount, so callers return a duplicate of it.
func (pl *Planner) fuseLayer(key layerKey) *os.File {
	for _, s := range pl.fuseTrees {
		if s.key == key && s.layer != nil {
			return s.layer
		}
	}
	return nil
}

// served mounts the Served tree of m, which a FUSE process shows, with the MOUNT_ATTR_* flags attr and the
// ids of userns, detached; the caller closes it. If FUSE does not support id-mapped mounts (before Linux
// 6.12), a second FUSE process maps them.
func (pl *Planner) served(ctx context.Context, m Mount, attr uint64, userns *os.File) (*os.File, error) {
	tree, err := MountServed(ctx, m, attr, userns)
	if !errors.Is(err, errUnmappable) || pl.Spec.MapIDs == nil {
		return tree, err
	}
	plain, err2 := MountServed(ctx, m, attr&unix.MOUNT_ATTR_RDONLY, nil)
	if err2 != nil {
		return nil, err2
	}
	defer plain.Close()
	return pl.serveMapped(ctx, m.Target, plain, attr, err)
}

// base mounts all[i], one of the lowest layers of the overlay at target that a FUSE process shows, with the
// ids of userns; the caller closes it. If another FUSE process maps the ids, later calls return the same
// mount.
func (pl *Planner) base(ctx context.Context, target string, all []Served, i int, userns *os.File) (*os.File, error) {
	key := layerKey{target: target, served: i}
	if m := pl.fuseLayer(key); m != nil {
		return vfs.Duplicate(m)
	}
	before := len(pl.fuseTrees)
	m, err := pl.served(ctx, Mount{Target: target, Served: all[i]}, unix.MOUNT_ATTR_RDONLY, userns)
	if err != nil || len(pl.fuseTrees) == before {
		return m, err
	}
	return pl.recordLayer(key, m)
}

// FUSETrees returns the targets (paths in the container) of the trees whose user and group ids FUSE processes
// map, since the kernel cannot. The user is shown them, because they are slower.
func (pl *Planner) FUSETrees() (targets []string) {
	for _, s := range pl.fuseTrees {
		targets = append(targets, s.target)
	}
	return slices.Compact(targets) // layers of one overlay are consecutive
}

// ShownRoots returns the roots of the FUSE mounts that show trees with mapped ids, which a freeze must sync.
// Only the first call returns them; the caller closes them.
func (pl *Planner) ShownRoots() (roots []*os.File) {
	for i, s := range pl.fuseTrees {
		if s.root != nil {
			roots = append(roots, s.root)
		}
		pl.fuseTrees[i].root = nil
	}
	return roots
}

// CloseFiles closes each of files, descriptors of mounts, and ignores errors.
func CloseFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
