//go:build linux

package overlay

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// holds says why the tree at path cannot be a lower layer, or nil.
func (b *backend) holds(path string) error {
	if b.below != nil {
		return b.below.Holds(path)
	}
	st, err := vfs.Lstat(unix.AT_FDCWD, path)
	if err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: errors.Unwrap(err)}
	}
	if !st.IsDir() {
		return because(errs.ErrNotSupported, path, "it is not a directory")
	}
	f, err := mount.FilesystemOf(path)
	if err != nil {
		return err
	}
	if why := whyNoLower(f); why != "" {
		return because(errs.ErrNotSupported, path, why)
	}
	if f.Type != "overlay" && !b.locked {
		return nil
	}
	return b.holdsMounts(path, f.Type == "overlay")
}

// whyNoLower: overlayfs takes almost anything to read from, and the contract
// asks for a clock of this machine.
func whyNoLower(f mount.Filesystem) string {
	switch {
	case f.IsNetwork():
		return "it is on a network filesystem (" + f.Type + "), where other machines write"
	case f.IsVirtual(), f.Type == "hugetlbfs":
		return "it is made up by the kernel (" + f.Type + "), there is nothing to copy"
	case foldsNames(f.Type):
		return f.Type + " does not tell upper from lower case, which overlayfs refuses"
	}
	return ""
}

func foldsNames(fs string) bool { return fs == "vfat" || fs == "exfat" || fs == "ntfs3" }

// holdsMounts looks the tree up in the table of mounts: for an ordinary user
// the kernel refuses a tree with locked mounts beneath it (they hide what the
// user may not see), and nobody may stack a third overlay on two.
func (b *backend) holdsMounts(path string, isOverlay bool) error {
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
			return because(errs.ErrNotSupported, path,
				"an ordinary user cannot overlay a directory with a filesystem mounted in it ("+quote(m.Path)+")")
		}
	}
	if isOverlay && (stacked(home) || !b.locked && b.tooDeep(path)) {
		return because(errs.ErrNotSupported, path, "it is an overlay of an overlay already, and the kernel stacks no more than two")
	}
	return nil
}

// within reports whether path is dir or lies in it, by name.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir) && path[len(dir)] == '/'
}

// stacked reports whether an overlay has another as a layer. A layer whose path
// means nothing here is taken for none.
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

// tooDeep reports whether the kernel refuses the tree as a layer, which it does of one that
// is stacked already, whatever its own layers are called.
func (b *backend) tooDeep(path string) bool {
	other := b.dir // overlayfs wants two layers where it has no upper
	for unix.Access(other, unix.F_OK) != nil {
		other = filepath.Dir(other)
	}
	m, err := mount.NewOverlay(mount.Overlay{Lower: []string{path, other}, UserXattr: b.userXattr})
	if err == nil {
		m.Close()
	}
	return errors.Is(err, unix.EINVAL)
}

// canHoldLayers says why an upper layer cannot lie in dir, or nil. Where dir is
// yet to be made, its nearest parent answers.
func canHoldLayers(dir string) error {
	f, err := mount.FilesystemOf(dir)
	for at := dir; errors.Is(err, fs.ErrNotExist) && at != "/"; {
		at = filepath.Dir(at)
		f, err = mount.FilesystemOf(at)
	}
	if err != nil {
		return err
	}
	if why := whyNoUpper(f); why != "" {
		return because(errs.ErrNotSupported, dir, why, "SNAPFS_HOME=/a/directory/on/another/filesystem snapfs ...")
	}
	return nil
}

// whyNoUpper: an upper layer needs whiteouts, renames that exchange, and
// extended attributes.
func whyNoUpper(f mount.Filesystem) string {
	switch {
	case f.ReadOnly:
		return "the place for layers is on a read-only filesystem"
	case f.Type == "overlay":
		return "the place for layers is itself on an overlay, which the kernel refuses"
	case f.Type == "fuse", f.Type == "ramfs", f.Type == "squashfs", f.Type == "erofs", f.Type == "iso9660",
		foldsNames(f.Type), f.IsNetwork(), f.IsVirtual(), f.Type == "hugetlbfs":
		return "the place for layers is on " + f.Type + ", which overlayfs cannot write layers to"
	}
	return ""
}
