//go:build linux

package mounts

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate/launch"
)

// A Layers makes and holds the id-mapped mounts that are the layers of one overlay. Before Linux 6.15 each
// must be attached, in a temporary mount namespace of a single thread.
type Layers struct {
	Userns *os.File
	// mapByFUSE mounts the directory path, which cannot be id-mapped for the reason why,
	// through a FUSE process. Its error is why if there is none.
	mapByFUSE func(path string, why error) (*os.File, error)
	base      func(i int) (*os.File, error) // mounts Overlay.Base[i]
	hidden    func() ([]*os.File, error)    // mounts the layers of Mount.Hidden; nil where nothing is hidden
	attached  bool                          // whether each layer must be attached
	root      *os.File                      // a copy of the mount of /, which contains most layers, or nil
	mounts    []*os.File
}

// overlayOf mounts the overlay of m from id-mapped layers, because an overlay itself cannot be id-mapped.
// attr are its MOUNT_ATTR_* flags; userns has the mapping. The caller closes the detached mount, the planner
// those of the layers.
func (pl *Planner) overlayOf(ctx context.Context, m Mount, attr uint64, userns *os.File) (*os.File, error) {
	target, o := m.Target, *m.Overlay
	l := &Layers{Userns: userns, root: pl.rootMount(userns), hidden: pl.hiddenLayer(target, userns)}
	l.mapByFUSE = func(path string, why error) (*os.File, error) { return pl.layerByFUSE(ctx, target, path, why) }
	l.base = func(i int) (*os.File, error) { return pl.base(ctx, target, o.Base, i, userns) }
	return pl.mountLayers(l, o, attr)
}

// mountLayers mounts the overlay o of the id-mapped layers that l makes, with the MOUNT_ATTR_* flags attr.
// The caller closes the detached mount, the planner those of the layers.
func (pl *Planner) mountLayers(l *Layers, o Overlay, attr uint64) (*os.File, error) {
	base := int(pl.Spec.IDs.Base)
	m, err := l.overlay(o, attr, base)
	pl.CloseLater = append(pl.CloseLater, l.mounts...)
	if !errors.Is(err, unix.EINVAL) {
		return m, err
	}
	placed, err2 := OverlayInScratch(o, attr, l, base)
	if err2 != nil {
		return nil, errors.Join(err, err2)
	}
	return placed, nil
}

// OverlayInScratch mounts the overlay o of id-mapped layers, with the MOUNT_ATTR_* flags attr, on kernels
// that require each layer to be attached somewhere, by a thread with a mount namespace of its own. like says
// how to map the layers; base is the host's id of the container's root.
func OverlayInScratch(o Overlay, attr uint64, like *Layers, base int) (*os.File, error) {
	return inScratch(func() (*os.File, error) {
		l := &Layers{Userns: like.Userns, mapByFUSE: like.mapByFUSE, base: like.base, hidden: like.hidden, attached: true}
		defer func() { CloseInBackground(l.mounts...) }()
		return l.overlay(o, attr, base)
	})
}

// AboveInScratch mounts the overlay ov above the detached mounts base, on kernels that require them to be
// attached, by a thread with a mount namespace of its own.
func AboveInScratch(ov mount.Overlay, base []*os.File) (*os.File, error) {
	return inScratch(func() (*os.File, error) {
		l := &Layers{attached: true}
		defer func() { CloseInBackground(l.mounts...) }()
		ov.Lower = slices.Clone(ov.Lower)
		for _, m := range base {
			name, err := l.add(vfs.Duplicate(m))
			if err != nil {
				return nil, err
			}
			ov.Lower = append(ov.Lower, name)
		}
		return mount.NewOverlay(ov)
	})
}

// NestedInScratch mounts the overlay ov, whose last layer contains the others, on kernels that require that
// layer, wrapped in an overlay, to be attached. A thread with a mount namespace of its own does so.
func NestedInScratch(ov mount.Overlay) (*os.File, error) {
	return inScratch(func() (*os.File, error) {
		l := &Layers{attached: true}
		defer func() { CloseInBackground(l.mounts...) }()
		last := len(ov.Lower) - 1
		name, err := l.wrap(ov.Lower[last], ov.UserXattr)
		if err != nil {
			return nil, err
		}
		ov.Lower, ov.Nested = append(slices.Clone(ov.Lower[:last]), name), false
		return mount.NewOverlay(ov)
	})
}

// inScratch calls mount on a thread that is alone in a new mount namespace, which ends with
// the thread. The returned mount is detached and stays; the caller closes it.
func inScratch(mount func() (*os.File, error)) (*os.File, error) {
	type answer struct {
		m   *os.File
		err error
	}
	done := make(chan answer)
	go launch.OnOwnThread(func() {
		if err := enterScratch(); err != nil {
			done <- answer{nil, err}
			return
		}
		m, err := mount()
		done <- answer{m, err}
	})
	a := <-done
	return a.m, a.err
}

func (l *Layers) overlay(o Overlay, attr uint64, base int) (*os.File, error) {
	ov := mount.Overlay{
		UserXattr: o.UserXattr, RedirectDir: !o.UserXattr, Metacopy: o.Metacopy,
		Volatile: true, NoIndex: true, Attr: attr,
	}
	ov.Xino = o.xino(l.hidden != nil)
	for i, path := range o.Lower {
		last := i == len(o.Lower)-1
		if err := l.addHidden(&ov, last && len(o.Base) == 0); err != nil {
			return nil, err
		}
		name, err := l.findLower(path)
		if err == nil && o.Nested && len(o.Lower) == 1 && o.Upper == "" {
			if len(ov.Lower) > 0 { // two layers with the hidden one
				ov.Lower, ov.RedirectDir = append(ov.Lower, name), false
				return mount.NewOverlay(ov)
			}
			return l.alone(name, o.UserXattr, attr)
		}
		if err == nil && o.Nested && last {
			name, err = l.wrap(name, o.UserXattr)
		}
		if err != nil {
			return nil, err
		}
		ov.Lower = append(ov.Lower, name)
	}
	if err := l.addHidden(&ov, len(o.Base) > 0); err != nil {
		return nil, err
	}
	for i := range o.Base {
		name, err := l.add(l.base(i))
		if err != nil {
			return nil, err
		}
		ov.Lower = append(ov.Lower, name)
	}
	if o.Upper == "" {
		return mount.NewOverlay(ov)
	}
	parent := filepath.Dir(o.Work)
	dir, err := l.find(parent) // one mount for both, as overlayfs demands
	if err != nil {
		return nil, err
	}
	ov.Upper, ov.Work = dir+strings.TrimPrefix(o.Upper, parent), dir+"/"+filepath.Base(o.Work)
	return writable(ov, base)
}

// xino returns the value of the overlay's mount option xino, or "" for none. The option makes inode numbers
// of files on several filesystems consistent. hidden is set if a layer hides entries of the host's tree,
// which adds such a filesystem.
func (o *Overlay) xino(hidden bool) string {
	switch {
	case hidden && o.OneFilesystem:
		return "on"
	case o.Upper != "":
		// With layers on two filesystems, a directory would otherwise have another inode number in its parent's
		// listing than in stat(2), and another device number than the files in it. The kernel mends this only where
		// both number their files in 32 bits, such as ext4.
		return "auto"
	}
	return ""
}

// addHidden appends the layers that hide entries of the host's tree to the lower layers of the overlay ov, if
// the tree has hidden entries. It is called before each layer is added; here is true directly above the
// host's tree, where the hiding layers belong.
func (l *Layers) addHidden(ov *mount.Overlay, here bool) error {
	if !here || l.hidden == nil {
		return nil
	}
	layers, err := l.hidden()
	for _, m := range layers {
		name, err2 := l.add(m, err)
		if err2 != nil {
			return err2
		}
		ov.Lower = append(ov.Lower, name)
	}
	return err
}

// rootMount returns an id-mapped copy of the mount of /, created on the first call; the
// planner closes it. It returns nil if / cannot be id-mapped.
func (pl *Planner) rootMount(userns *os.File) *os.File {
	if pl.rootCopy == nil {
		m, err := Mapped("/", 0, userns)
		if err != nil {
			return nil // find then maps each layer by itself
		}
		pl.rootCopy = m
		pl.CloseLater = append(pl.CloseLater, m)
	}
	return pl.rootCopy
}

// find mounts the directory path, a writable layer of the overlay, with mapped ids, and returns a path to it.
// It uses rootMount if possible, because removing a mount of its own would take the kernel milliseconds.
func (l *Layers) find(path string) (string, error) {
	if l.root != nil && !l.attached {
		if f := l.onRoot(path); f != nil {
			l.mounts = append(l.mounts, f)
			return vfs.FDPath(f), nil
		}
	}
	return l.add(Mapped(path, 0, l.Userns))
}

// findLower mounts the directory path with mapped ids, as a read-only layer, and returns a path
// to it. Where the kernel cannot map the ids, FUSE does.
func (l *Layers) findLower(path string) (string, error) {
	name, err := l.find(path)
	if !errors.Is(err, errUnmappable) {
		return name, err
	}
	return l.add(l.mapByFUSE(path, err))
}

// onRoot opens the directory path in the id-mapped copy of the mount of /, which saves a mount of its own. It
// returns nil if path is on another mount.
func (l *Layers) onRoot(path string) *os.File {
	fd, err := unix.Openat2(int(l.root.Fd()), "."+path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), path)
	var there, here unix.Stat_t
	if unix.Fstat(fd, &there) != nil || unix.Stat(path, &here) != nil || there.Dev != here.Dev || there.Ino != here.Ino {
		f.Close()
		return nil
	}
	return f
}

// add records the mount m as a layer of the overlay, attaches it in scratchDir if the kernel requires that,
// and returns a path to it. If err, of making m, is not nil, add only returns err.
func (l *Layers) add(m *os.File, err error) (string, error) {
	if err != nil {
		return "", err
	}
	l.mounts = append(l.mounts, m)
	if !l.attached {
		return vfs.FDPath(m), nil
	}
	place := scratchDir + "/" + strconv.Itoa(len(l.mounts))
	if err := os.MkdirAll(place, 0o700); err != nil {
		return "", err
	}
	return place, mount.MoveMount(m, place)
}

// wrap mounts an overlay of the single layer name, as [mount.WrapLower] does, so that it can be a layer
// together with directories inside it. userXattr says that its marks are in user.overlay.* attributes. It
// returns a path to the overlay, which l closes later.
func (l *Layers) wrap(name string, userXattr bool) (string, error) {
	return l.add(l.alone(name, userXattr, 0))
}

// alone mounts a read-only overlay of the layer name above an empty one, because overlayfs demands two.
// userXattr is as in wrap, and attr are MOUNT_ATTR_* flags. The caller closes the mount.
func (l *Layers) alone(name string, userXattr bool, attr uint64) (*os.File, error) {
	c, err := mount.Fsopen("tmpfs")
	if err != nil {
		return nil, err
	}
	defer c.Close()
	empty, err := l.add(c.Mount(0))
	if err != nil {
		return nil, err
	}
	return mount.NewOverlay(mount.Overlay{Lower: []string{name, empty}, UserXattr: userXattr, Attr: attr})
}

// scratchDir is the directory that enterScratch covers with a tmpfs, to attach overlay layers in. No layer
// lies there, and overlayfs needs nothing of it.
const scratchDir = "/dev"

// enterScratch moves this thread into a new mount namespace, with an empty tmpfs on scratchDir, in which
// layers can be attached.
func enterScratch() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("snapfs", scratchDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=700")
}
