//go:build linux

package isolate

import (
	"context"
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// A shifted is a tree that a process shows with the ids of the box, because its
// filesystem cannot be id-mapped.
type shifted struct {
	target string
	root   *os.File // of what is shown
	// layer is its mount, where that is to be a layer of an overlay, and key says which.
	layer *os.File
	key   layerKey
}

// A layerKey is the path of a directory, or which of those that are served beneath the overlay at a target.
type layerKey struct {
	path, target string
	served       int
}

// maxShiftRead bounds a request, see shift.MaxRead: this program does not link that package.
const maxShiftRead = 1 << 20

// shifted shows a directory by [Spec.Shift]. why is the reason that it cannot be id-mapped, and
// the answer where there is no other way.
func (b *builder) shifted(ctx context.Context, target, path string, attr uint64, why error) (*os.File, error) {
	if b.spec.Shift == nil {
		return nil, why
	}
	tree, err := mapped(path, attr&unix.MOUNT_ATTR_RDONLY, nil) // with nothing mounted beneath it
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	return b.shownBy(ctx, target, tree, attr, why)
}

// shownBy shows a tree that is mounted somewhere.
func (b *builder) shownBy(ctx context.Context, target string, tree *os.File, attr uint64, why error) (*os.File, error) {
	fuse, mount, err := kernel.NewFUSE(kernel.FUSEOptions{Subtype: "snapfs-shift", Others: true, MaxRead: maxShiftRead}, attr)
	if err != nil {
		return nil, errors.Join(why, err)
	}
	dev := os.NewFile(uintptr(fuse.Dev), "/dev/fuse")
	err = b.spec.Shift(ctx, dev, tree, b.spec.IDs.base)
	dev.Close() // the process has it
	var root *os.File
	if err == nil {
		root, err = kernel.OpenDir(int(mount.Fd()), ".") // it answers
	}
	if err != nil {
		mount.Close()
		return nil, err
	}
	b.shifts = append(b.shifts, shifted{target: target, root: root})
	return mount, nil
}

// layerShifted is shifted for a layer, which is made once and may be wanted again: its
// mount is the builder's to close.
func (b *builder) layerShifted(ctx context.Context, target, path string, why error) (*os.File, error) {
	key := layerKey{path: path}
	if m := b.layerShown(key); m != nil {
		return duplicate(m)
	}
	m, err := b.shifted(ctx, target, path, unix.MOUNT_ATTR_RDONLY, why)
	if err != nil {
		return nil, err
	}
	return b.keepLayer(key, m)
}

// keepLayer notes that what was shown last is a layer.
func (b *builder) keepLayer(key layerKey, m *os.File) (*os.File, error) {
	s := &b.shifts[len(b.shifts)-1]
	s.key, s.layer = key, m
	b.trash = append(b.trash, m)
	return duplicate(m)
}

// layerShown is the mount of a layer that is shown already, or nil.
func (b *builder) layerShown(key layerKey) *os.File {
	for _, s := range b.shifts {
		if s.key == key && s.layer != nil {
			return s.layer
		}
	}
	return nil
}

// served mounts a tree that a process answers for, with the ids of userns; where FUSE has no
// id-mapped mounts (before Linux 6.12), another process shows it with them.
func (b *builder) served(ctx context.Context, m Mount, attr uint64, userns *os.File) (*os.File, error) {
	tree, err := mountServed(ctx, m, attr, userns)
	if !errors.As(err, new(unmappable)) || b.spec.Shift == nil {
		return tree, err
	}
	plain, err2 := mountServed(ctx, m, attr&unix.MOUNT_ATTR_RDONLY, nil)
	if err2 != nil {
		return nil, err2
	}
	defer plain.Close()
	return b.shownBy(ctx, m.Target, plain, attr, err)
}

// base is served for one of those that lie beneath the layers of an overlay, as often as it is wanted.
func (b *builder) base(ctx context.Context, target string, all []Served, i int, userns *os.File) (*os.File, error) {
	key := layerKey{target: target, served: i}
	if m := b.layerShown(key); m != nil {
		return duplicate(m)
	}
	before := len(b.shifts)
	m, err := b.served(ctx, Mount{Target: target, Served: all[i]}, unix.MOUNT_ATTR_RDONLY, userns)
	if err != nil || len(b.shifts) == before {
		return m, err
	}
	return b.keepLayer(key, m)
}

func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// shiftedTrees are the targets of the trees that a process shows.
func (b *builder) shiftedTrees() (targets []string) {
	for _, s := range b.shifts {
		targets = append(targets, s.target)
	}
	return slices.Compact(targets) // layers of one overlay follow each other
}

// shownRoots hands the roots of what is shown over.
func (b *builder) shownRoots() (roots []*os.File) {
	for i, s := range b.shifts {
		if s.root != nil {
			roots = append(roots, s.root)
		}
		b.shifts[i].root = nil
	}
	return roots
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
