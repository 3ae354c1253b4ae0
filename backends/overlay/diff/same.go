//go:build linux

package diff

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"strings"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// errDiffers and errUnknown end a comparison of two layers by [Mode.Same]. No caller sees them.
var (
	errDiffers = errors.New("the layers differ")
	errUnknown = errors.New("the layers differ in attributes that may mean the same")
)

// Same reports whether the layers x and y, given by their directories, have the same entries, so that a mount with the
// same lower layers shows the same tree above either. known is false if it cannot tell: an entry is unreadable for this
// user, or has other attributes of overlayfs itself, which may mean the same. Processes may change either layer
// meanwhile. Cost: a dozen system calls for each entry, and reading files of equal size.
func (m Mode) Same(ctx context.Context, x, y string) (same, known bool) {
	c := layerComparer{Mode: m, ctx: ctx}
	for i, tree := range []string{x, y} {
		root, err := vfs.OpenDir(unix.AT_FDCWD, tree)
		if err != nil {
			return false, false
		}
		defer root.Close()
		c.root[i] = root
	}
	_, err := c.entry([2]int{int(c.root[0].Fd()), int(c.root[1].Fd())}, "")
	for c.dirs = []string{""}; err == nil && len(c.dirs) > 0; {
		name := c.dirs[len(c.dirs)-1]
		c.dirs = c.dirs[:len(c.dirs)-1]
		err = c.dir(name)
	}
	for _, name := range c.files { // last: most changes show in an entry's size or time
		if err == nil {
			err = c.content(name)
		}
	}
	return err == nil, err == nil || errors.Is(err, errDiffers)
}

// HasFiles reports whether a layer, given by its directory, has an entry that is not a directory.
func HasFiles(tree string) bool {
	err := store.Walk(tree, func(name string, dir *os.File, err error) (dirs []string, _ error) {
		if err != nil {
			return nil, nil //nolint:nilerr // unreadable for this user, or removed meanwhile
		}
		err = vfs.EachEntry(int(dir.Fd()), func(entry []byte, _ uint64, typ uint8) error {
			if !store.IsDir(int(dir.Fd()), entry, typ) {
				return errDiffers
			}
			dirs = append(dirs, store.Join(name, entry))
			return nil
		})
		return dirs, err
	})
	return errors.Is(err, errDiffers)
}

// A layerComparer is the state of one comparison of two layers.
type layerComparer struct {
	Mode
	ctx  context.Context
	root [2]*os.File
	// dirs and files are the directories, and the regular files with content, that are still to be compared.
	dirs, files []string
	data        [2][]byte
}

// dir compares the entries of the directory name, which both layers have.
func (c *layerComparer) dir(name string) error {
	var fd [2]int
	var entries [2][]vfs.Entry
	for i, root := range c.root {
		dir, err := store.OpenIn(root, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
		if err != nil {
			return differsIfGone(err)
		}
		defer dir.Close()
		fd[i] = int(dir.Fd())
		if entries[i], err = vfs.Entries(fd[i]); err != nil {
			return err
		}
		vfs.SortEntries(entries[i])
	}
	if len(entries[0]) != len(entries[1]) {
		return errDiffers
	}
	for i, e := range entries[0] {
		if e.Name != entries[1][i].Name {
			return errDiffers
		}
		st, err := c.entry(fd, e.Name)
		if err != nil {
			return err
		}
		switch path := store.Join(name, []byte(e.Name)); {
		case st.IsDir():
			c.dirs = append(c.dirs, path)
		case st.IsRegular() && st.Size > 0:
			c.files = append(c.files, path)
		}
	}
	return c.ctx.Err()
}

// differsIfGone returns errDiffers if err says that an entry is missing or of another type, because a process has
// removed or replaced it since it was listed.
func differsIfGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return errDiffers
	}
	return err
}

// entry compares the entry name of the two open directories fd, or the directories themselves if name is "", without
// the entries of a directory and the content of a file. If both are equal, it returns the attributes.
func (c *layerComparer) entry(fd [2]int, name string) (vfs.Stat, error) {
	var st [2]vfs.Stat
	for i := range fd {
		var err error
		if st[i], err = vfs.Lstat(fd[i], name); err != nil {
			return st[0], differsIfGone(err)
		}
	}
	a, b := &st[0], &st[1]
	if a.IsWhiteout() && b.IsWhiteout() {
		return *a, nil
	}
	if a.Mode != b.Mode || a.UID != b.UID || a.GID != b.GID || a.Rdev != b.Rdev || a.MTime != b.MTime || !a.IsDir() && a.Size != b.Size {
		return *a, errDiffers
	}
	if a.IsSymlink() {
		if err := c.targets(fd, name); err != nil {
			return *a, err
		}
	}
	return *a, c.attributes(fd, name)
}

// attributes compares the extended attributes of the entry name of the two directories fd. It returns errDiffers if the
// user's attributes differ, and errUnknown if only those of overlayfs do.
func (c *layerComparer) attributes(fd [2]int, name string) error {
	var all, own [2]map[string]string
	for i := range fd {
		attrs, err := vfs.Xattrs(fd[i], name)
		if err != nil {
			return differsIfGone(err)
		}
		all[i], own[i] = map[string]string{}, map[string]string{}
		for attr, value := range attrs {
			switch short, overlays := strings.CutPrefix(attr, c.Prefix); {
			case !overlays:
				all[i][attr] = value
			case !refersToLayer(short):
				own[i][attr] = value
			}
		}
	}
	switch {
	case !maps.Equal(all[0], all[1]):
		return errDiffers
	case !maps.Equal(own[0], own[1]):
		return errUnknown
	}
	return nil
}

// targets compares the targets of the symbolic links name in the two directories fd.
func (c *layerComparer) targets(fd [2]int, name string) error {
	var target [2]string
	for i := range fd {
		buf := make([]byte, unix.PathMax)
		n, err := vfs.Readlink(fd[i], name, buf)
		if err != nil {
			return differsIfGone(err)
		}
		target[i] = string(buf[:n])
	}
	if target[0] != target[1] {
		return errDiffers
	}
	return nil
}

// window is how many bytes of each of two files content reads at once.
const window = 128 << 10

// content compares the content of the regular file name of both layers.
func (c *layerComparer) content(name string) error {
	var file [2]*os.File
	for i, root := range c.root {
		f, err := store.OpenIn(root, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK)
		if err != nil {
			return differsIfGone(err)
		}
		defer f.Close()
		if file[i] = f; c.data[i] == nil {
			c.data[i] = make([]byte, window)
		}
	}
	for at := int64(0); ; at += window {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		var n [2]int
		for i, f := range file {
			var err error
			if n[i], err = f.ReadAt(c.data[i], at); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
		}
		if !bytes.Equal(c.data[0][:n[0]], c.data[1][:n[1]]) {
			return errDiffers
		}
		if n[0] < window {
			return nil
		}
	}
}
