//go:build linux

package isolate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// layers are the id-mapped mounts that an overlay is built of. From Linux 6.15
// on they need no place; before, they are attached in a mount namespace that
// only one thread is in, and only for this.
type layers struct {
	userns *os.File
	// shift shows what cannot be id-mapped, or says why not.
	shift  func(path string, why error) (*os.File, error)
	base   func(i int) (*os.File, error) // mounts what is served beneath all of them
	placed bool                          // give each a place
	root   *os.File                      // a copy of the mount of /, which most layers lie on, or nil
	mounts []*os.File
}

// overlayOf mounts an overlay whose layers are id-mapped, since an overlay
// itself cannot be.
func (b *builder) overlayOf(ctx context.Context, target string, o Overlay, attr uint64, userns *os.File) (*os.File, error) {
	base := int(b.spec.IDs.base)
	l := &layers{userns: userns, root: b.rootMount(userns)}
	l.shift = func(path string, why error) (*os.File, error) { return b.layerShifted(ctx, target, path, why) }
	l.base = func(i int) (*os.File, error) { return b.base(ctx, target, o.Base, i, userns) }
	m, err := l.overlay(o, attr, base)
	b.trash = append(b.trash, l.mounts...)
	if !errors.Is(err, unix.EINVAL) || errors.As(err, new(unmappable)) {
		return m, err
	}
	placed, err2 := overlayInScratch(o, attr, l, base)
	if err2 != nil {
		return nil, errors.Join(err, err2)
	}
	return placed, nil
}

// overlayInScratch does it for kernels that want each layer to have a place.
func overlayInScratch(o Overlay, attr uint64, like *layers, base int) (*os.File, error) {
	return inScratch(func() (*os.File, error) {
		l := &layers{userns: like.userns, shift: like.shift, base: like.base, placed: true}
		defer func() { later(l.mounts...) }()
		return l.overlay(o, attr, base)
	})
}

// aboveInScratch mounts an overlay above mounts that are attached nowhere, for kernels
// that want these to have a place.
func aboveInScratch(ov kernel.Overlay, base []*os.File) (*os.File, error) {
	return inScratch(func() (*os.File, error) {
		l := &layers{placed: true}
		defer func() { later(l.mounts...) }()
		ov.Lower = slices.Clone(ov.Lower)
		for _, m := range base {
			name, err := l.add(duplicate(m))
			if err != nil {
				return nil, err
			}
			ov.Lower = append(ov.Lower, name)
		}
		return kernel.MountOverlay(ov)
	})
}

// nestedInScratch mounts an overlay whose last layer contains the others, for
// kernels that want that one, wrapped, to have a place.
func nestedInScratch(ov kernel.Overlay) (*os.File, error) {
	return inScratch(func() (*os.File, error) {
		l := &layers{placed: true}
		defer func() { later(l.mounts...) }()
		last := len(ov.Lower) - 1
		name, err := l.wrap(ov.Lower[last], ov.UserXattr)
		if err != nil {
			return nil, err
		}
		ov.Lower, ov.Nested = append(slices.Clone(ov.Lower[:last]), name), false
		return kernel.MountOverlay(ov)
	})
}

// inScratch mounts in a mount namespace that one thread has for itself. It ends
// with that thread; what was mounted is attached nowhere, and stays.
func inScratch(mount func() (*os.File, error)) (*os.File, error) {
	type answer struct {
		m   *os.File
		err error
	}
	done := make(chan answer)
	go onOwnThread(func() {
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

func (l *layers) overlay(o Overlay, attr uint64, base int) (*os.File, error) {
	ov := kernel.Overlay{
		UserXattr: o.UserXattr, RedirectDir: !o.UserXattr, Metacopy: !o.UserXattr,
		Volatile: true, NoIndex: true, Attr: attr,
	}
	for i, path := range o.Lower {
		name, err := l.findLower(path)
		if err == nil && o.Nested && i == len(o.Lower)-1 {
			name, err = l.wrap(name, o.UserXattr)
		}
		if err != nil {
			return nil, err
		}
		ov.Lower = append(ov.Lower, name)
	}
	for i := range o.Base {
		name, err := l.add(l.base(i))
		if err != nil {
			return nil, err
		}
		ov.Lower = append(ov.Lower, name)
	}
	if o.Upper == "" {
		return kernel.MountOverlay(ov)
	}
	parent := filepath.Dir(o.Work)
	dir, err := l.find(parent) // one mount for both, as overlayfs demands
	if err != nil {
		return nil, err
	}
	ov.Upper, ov.Work = dir+strings.TrimPrefix(o.Upper, parent), dir+"/"+filepath.Base(o.Work)
	return writable(ov, base)
}

// rootMount is an id-mapped copy of the mount of /, made once, or nil.
func (b *builder) rootMount(userns *os.File) *os.File {
	if b.rootCopy == nil {
		m, err := mapped("/", 0, userns)
		if err != nil {
			return nil // each layer then answers for itself
		}
		b.rootCopy = m
		b.trash = append(b.trash, m)
	}
	return b.rootCopy
}

// find answers with a path by which a directory is reached id-mapped: on the
// copy of the mount of /, where it is there, because a mount of its own takes the
// kernel milliseconds to get rid of.
func (l *layers) find(path string) (string, error) {
	if l.root != nil && !l.placed {
		if f := l.onRoot(path); f != nil {
			l.mounts = append(l.mounts, f)
			return kernel.FDPath(f), nil
		}
	}
	return l.add(mapped(path, 0, l.userns))
}

// findLower is find for a layer that is only read: it may be shown by a process.
func (l *layers) findLower(path string) (string, error) {
	name, err := l.find(path)
	if !errors.As(err, new(unmappable)) {
		return name, err
	}
	return l.add(l.shift(path, err))
}

// onRoot opens a directory on the copy of the mount of /, or answers nil when
// the way to it leaves that mount.
func (l *layers) onRoot(path string) *os.File {
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

// add takes a mount in and answers with a path of it.
func (l *layers) add(m *os.File, err error) (string, error) {
	if err != nil {
		return "", err
	}
	l.mounts = append(l.mounts, m)
	if !l.placed {
		return kernel.FDPath(m), nil
	}
	place := scratchDir + "/" + strconv.Itoa(len(l.mounts))
	if err := os.MkdirAll(place, 0o700); err != nil {
		return "", err
	}
	return place, kernel.MoveMount(m, unix.AT_FDCWD, place)
}

// wrap is [kernel.WrapLower], with mounts that are closed later.
func (l *layers) wrap(name string, userXattr bool) (string, error) {
	c, err := kernel.Fsopen("tmpfs")
	if err != nil {
		return "", err
	}
	defer c.Close()
	empty, err := l.add(c.Mount(0))
	if err != nil {
		return "", err
	}
	return l.add(kernel.MountOverlay(kernel.Overlay{Lower: []string{name, empty}, UserXattr: userXattr}))
}

// scratchDir is covered by a tmpfs in the scratch namespace: no layer lies there,
// and nothing of it is needed.
const scratchDir = "/dev"

// enterScratch gives this thread a mount namespace of its own.
func enterScratch() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("snapfs", scratchDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=700")
}
