//go:build linux

package treetest

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Options select which properties of files a comparison of two trees ignores. The zero value ignores only
// access, change and birth times, inode numbers, and the sizes and link counts of directories.
type Options struct {
	// NoOwner, NoTimes, NoDirTimes, NoXattrs, NoContent and NoLinks ignore the property in
	// their name; NoContent still compares sizes.
	NoOwner, NoTimes, NoDirTimes, NoXattrs, NoContent, NoLinks bool
	// Sparse compares allocated blocks too. Only filesystems of one type allocate alike.
	Sparse bool
	// OneFilesystem lists a mount point, but not the tree mounted there.
	OneFilesystem bool
	// Skip leaves out a path and everything in it.
	Skip func(path string) bool
	// SkipXattr leaves out an attribute for which it returns true. Attributes of security
	// modules are always left out.
	SkipXattr func(name string) bool
}

// Manifest describes the tree in dir as text, for comparing trees: a line for each name of each inode, sorted
// by the bytes of the path, element by element. Two trees with equal manifests are equal in every property
// that o does not exclude.
func Manifest(t testing.TB, dir string, o Options) string {
	t.Helper()
	var b strings.Builder
	if err := WriteManifest(&b, Open(t, dir), o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// WriteManifest writes a description of the tree in the open directory root to w, as [Manifest] returns it.
// It reads every file and changes nothing, not even access times where this user may avoid it.
func WriteManifest(w io.Writer, root *os.File, o Options) error {
	m := manifest{Options: o, w: bufio.NewWriter(w), first: map[inode]string{}}
	if err := m.node(int(root.Fd()), "", "."); err != nil {
		return err
	}
	if err := m.dir(root, ""); err != nil {
		return err
	}
	return m.w.Flush()
}

type inode struct{ dev, ino uint64 }

type manifest struct {
	Options
	w     *bufio.Writer
	first map[inode]string // the first path of each node that has several
}

// dir writes the lines of the manifest (a tree's description as text) for the entries of an open directory
// and everything in them. path is the directory's path in the tree.
func (m *manifest) dir(dir *os.File, path string) error {
	list, err := vfs.Entries(int(dir.Fd()))
	if err != nil {
		return fmt.Errorf("%q: %w", path, err)
	}
	vfs.SortEntries(list)
	for _, e := range list {
		p := join(path, e.Name)
		if m.Skip != nil && m.Skip(p) {
			continue
		}
		if err := m.node(int(dir.Fd()), e.Name, p); err != nil {
			return fmt.Errorf("%q: %w", p, err)
		}
	}
	return nil
}

// node writes the line of the manifest (a tree's description as text) for the file name in dirfd, and for a
// directory also those of its entries. A file that is gone by then is left out.
func (m *manifest) node(dirfd int, name, path string) error {
	st, err := vfs.Lstat(dirfd, name)
	if errors.Is(err, unix.ENOENT) && name != "" {
		return nil // somebody else's file, gone since it was listed
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(m.w, "%s\t%v", strconv.Quote(path), st.FileMode())
	if !m.NoOwner {
		fmt.Fprintf(m.w, " %d:%d", st.UID, st.GID)
	}
	if !m.NoTimes && !(m.NoDirTimes && st.IsDir()) {
		fmt.Fprintf(m.w, " %d.%09d", st.MTime.Sec, st.MTime.Nsec)
	}
	if err := m.content(dirfd, name, &st); err != nil {
		return err
	}
	if err := m.xattrs(dirfd, name); err != nil {
		return err
	}
	m.links(&st, path)
	m.w.WriteByte('\n')
	if !st.IsDir() || name == "" || m.OneFilesystem && st.MountRoot {
		return nil
	}
	dir, err := vfs.OpenDir(dirfd, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	return m.dir(dir, path)
}

func (m *manifest) content(dirfd int, name string, st *vfs.Stat) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		fmt.Fprintf(m.w, " %d", st.Size)
		if m.Sparse {
			fmt.Fprintf(m.w, " blocks=%d", st.Blocks)
		}
		if m.NoContent {
			return nil
		}
		sum, err := hash(dirfd, name)
		fmt.Fprintf(m.w, " %s", sum)
		return err
	case unix.S_IFLNK:
		buf := make([]byte, 1<<16)
		n, err := unix.Readlinkat(dirfd, name, buf)
		fmt.Fprintf(m.w, " -> %q", buf[:max(n, 0)])
		return err
	case unix.S_IFCHR, unix.S_IFBLK:
		fmt.Fprintf(m.w, " %d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	}
	return nil
}

// hash returns the SHA-256 of a file's content, for the description of a tree, or "unreadable" if this user
// may not read it.
func hash(dirfd int, name string) (string, error) {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dirfd, name, flags|unix.O_NOATIME, 0)
	if err == unix.EPERM {
		fd, err = unix.Openat(dirfd, name, flags, 0)
	}
	if err == unix.EACCES {
		return "unreadable", nil
	}
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

func (m *manifest) xattrs(dirfd int, name string) error {
	if m.NoXattrs {
		return nil
	}
	all, err := vfs.Xattrs(dirfd, name)
	if errors.Is(err, unix.EACCES) {
		return nil
	}
	for _, attr := range slices.Sorted(maps.Keys(all)) {
		switch attr {
		case "security.selinux", "security.ima", "security.evm", "security.SMACK64":
			continue
		}
		if m.SkipXattr == nil || !m.SkipXattr(attr) {
			fmt.Fprintf(m.w, " %q=%q", attr, all[attr])
		}
	}
	return err
}

func (m *manifest) links(st *vfs.Stat, path string) {
	if m.NoLinks || st.IsDir() || st.Nlink < 2 {
		return
	}
	id := inode{st.Dev, st.Ino}
	if first, ok := m.first[id]; ok {
		fmt.Fprintf(m.w, " link of %q", first)
	} else {
		m.first[id] = path
	}
}
