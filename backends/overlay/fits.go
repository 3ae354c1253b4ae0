//go:build linux

package overlay

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// checkLower returns the reason why overlayfs cannot use the directory tree at path as the lowest, read-only
// layer, or nil.
func (b *backend) checkLower(path string) error {
	if b.served != nil {
		return b.served.Holds(path)
	}
	st, err := vfs.Lstat(unix.AT_FDCWD, path)
	if err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: errors.Unwrap(err)}
	}
	if !st.IsDir() {
		return store.Refuse(errs.ErrNotSupported, path, "not a directory")
	}
	f, err := mount.FilesystemOf(path)
	if err != nil {
		return err
	}
	if why := whyNoLower(f); why != "" {
		return store.Refuse(errs.ErrNotSupported, path, why)
	}
	if f.Type != "overlay" && !b.locked {
		return nil
	}
	return b.checkMounts(path, f.Type == "overlay")
}

// whyNoLower returns the reason why the filesystem f cannot hold a lower layer of an overlay, or "".
// Overlayfs reads from almost any; the contract of snapshots also needs times by the clock of this machine.
func whyNoLower(f mount.Filesystem) string {
	switch {
	case f.IsNetwork():
		return "the tree is on a network filesystem (" + f.Type + "), where other machines write"
	case f.IsVirtual(), f.Type == "hugetlbfs":
		return "the tree is on a virtual filesystem of the kernel (" + f.Type + "), which cannot be copied"
	case foldsNames(f.Type):
		return f.Type + " ignores case in names, which overlayfs does not support"
	}
	return ""
}

func foldsNames(fs string) bool { return fs == "vfat" || fs == "exfat" || fs == "ntfs3" }

// checkMounts returns an error if the mount table shows that overlayfs cannot use the tree at path as a lower
// layer. The kernel refuses an ordinary user a tree with locked mounts inside, and everybody an overlay
// stacked on two others. isOverlay is set if the tree is on an overlay.
func (b *backend) checkMounts(path string, isOverlay bool) error {
	mounts, err := mount.List()
	if err != nil {
		return err
	}
	var home mount.Point
	for _, m := range mounts {
		if within(path, m.Path) && len(m.Path) >= len(home.Path) {
			home = m
		}
		if b.locked && m.Path != path && within(m.Path, path) {
			return store.Refuse(errs.ErrNotSupported, path,
				"an ordinary user cannot overlay a directory with a filesystem mounted in it ("+strconv.Quote(m.Path)+")")
		}
	}
	if isOverlay && (stacked(home) || !b.locked && b.tooDeep(path)) {
		return store.Refuse(errs.ErrNotSupported, path, "the tree is an overlay of an overlay, and the kernel stacks no more than two")
	}
	return nil
}

// within reports whether path is the directory dir or inside it. It compares path names only and follows no
// links.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir) && path[len(dir)] == '/'
}

// stacked reports whether the overlay m has another overlay as a layer. A layer whose path
// does not exist in this mount namespace counts as none.
func stacked(m mount.Point) bool {
	for option := range strings.SplitSeq(m.SuperOptions, ",") {
		key, layers, _ := strings.Cut(option, "=")
		if !strings.HasPrefix(key, "lowerdir") {
			continue
		}
		for layer := range strings.SplitSeq(layers, ":") {
			if f, err := mount.FilesystemOf(layer); err == nil && f.Type == "overlay" {
				return true
			}
		}
	}
	return false
}

// tooDeep reports whether the kernel refuses the tree at path as a layer because it is an overlay on an
// overlay already, by trying it. Unlike stacked, it does not depend on the paths of the layers.
func (b *backend) tooDeep(path string) bool {
	other := b.store.Dir // an overlay without an upper needs two lowers
	for unix.Access(other, unix.F_OK) != nil {
		other = filepath.Dir(other)
	}
	m, err := mount.NewOverlay(mount.Overlay{Lower: []string{path, other}, UserXattr: b.store.UserXattr})
	if err == nil {
		m.Close()
	}
	return errors.Is(err, unix.EINVAL)
}

// checkUpper returns the reason why an upper layer of overlayfs cannot be in dir, or nil. If dir does not
// exist yet, it checks the nearest parent that does.
func checkUpper(dir string) error {
	f, err := mount.FilesystemOf(dir)
	for at := dir; errors.Is(err, fs.ErrNotExist) && at != "/"; {
		at = filepath.Dir(at)
		f, err = mount.FilesystemOf(at)
	}
	if err != nil {
		return err
	}
	if why := whyNoUpper(f); why != "" {
		return store.Refuse(errs.ErrNotSupported, dir, why, "SNAPFS_HOME=/a/directory/on/another/filesystem snapfs ...")
	}
	return nil
}

// whyNoUpper returns the reason why the filesystem f cannot hold an upper layer of overlayfs, or "". An upper
// needs whiteouts, RENAME_EXCHANGE and extended attributes.
func whyNoUpper(f mount.Filesystem) string {
	switch {
	case f.ReadOnly:
		return "the directory for layers is on a read-only filesystem"
	case f.Type == "overlay":
		return "the directory for layers is itself on an overlay, which the kernel refuses"
	case f.Type == "fuse", f.Type == "ramfs", f.Type == "squashfs", f.Type == "erofs", f.Type == "iso9660",
		foldsNames(f.Type), f.IsNetwork(), f.IsVirtual(), f.Type == "hugetlbfs":
		return "the directory for layers is on " + f.Type + ", which overlayfs cannot use as an upper"
	}
	return ""
}
