//go:build linux

package diff

import (
	"context"
	"os"
	"path"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A merger is the state of one [Merge]: it writes one layer with the same effect as several, above any lower
// tree. Merging a single layer copies it.
type merger struct {
	Layers
	ctx  context.Context
	out  *os.File
	link map[inode]string // the first name of each inode with several links
	// noReflink is set if the last file could not be cloned, because the filesystem has no reflinks. small is then the
	// buffer into which a small file is read at once.
	noReflink bool
	small     []byte
}

type inode struct {
	layer int
	ino   uint64
}

// Merge fills the empty directory dst with the combined content of the layers trees, topmost first; how says
// who wrote them. Cost: in proportion to their content. After an error dst holds a partial result.
func Merge(ctx context.Context, how Mode, trees []string, dst string) error {
	m := merger{Layers: Layers{Mode: how}, ctx: ctx, link: map[inode]string{}}
	defer m.Close()
	if err := m.Open(trees); err != nil {
		return err
	}
	out, err := vfs.OpenDir(unix.AT_FDCWD, dst)
	if err != nil {
		return err
	}
	defer out.Close()
	m.out = out
	root := m.root()
	if root.Stat, err = vfs.Lstat(int(m.roots[0].Fd()), ""); err != nil {
		return err
	}
	if err := fault.Point(ctx, "copy the layer"); err != nil {
		return err
	}
	return m.dir("", out, &root)
}

// dir merges the layers' entries of the directory name into the merged layer, which has that directory
// already, open as out, and then sets its attributes. s is the lookup of the directory through the layers.
func (m *merger) dir(name string, out *os.File, s *Stack) error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	names, err := m.names(s)
	if err != nil {
		return err
	}
	for _, n := range names {
		child, err := m.child(s, n, 0)
		if err != nil {
			return err
		}
		if err := m.put(path.Join(name, n), int(out.Fd()), s, &child); err != nil {
			return err
		}
	}
	return m.finish(name, s)
}

// names returns all names that the layers to merge have in one directory, whose lookup through the layers is
// s.
func (m *merger) names(s *Stack) ([]string, error) {
	seen := map[string]bool{}
	var names []string
	for j, has := range s.Has {
		if !has || j >= s.end {
			continue
		}
		dir, err := store.OpenIn(m.roots[j], s.at[j], unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
		if err != nil {
			return nil, err
		}
		err = vfs.EachEntry(int(dir.Fd()), func(name []byte, _ uint64, _ uint8) error {
			if !seen[string(name)] {
				seen[string(name)] = true
				names = append(names, string(name))
			}
			return nil
		})
		dir.Close()
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

// put writes the entry name, whose lookup through the layers is s, into its directory at of the merged layer: a
// directory with its content, a file, a hard link or a whiteout. It writes nothing if no layer provides the entry.
func (m *merger) put(name string, at int, parent, s *Stack) error {
	base := path.Base(name)
	switch {
	case s.Top < 0:
		return nil // deleted since it was listed, or hidden by a directory above
	case s.Whiteout && parent.ReachesLower():
		return store.PathError("mknod", name, unix.Mknodat(at, base, unix.S_IFCHR, 0))
	case s.Whiteout:
		return nil // the lower tree has nothing to hide
	}
	revoke, err := m.grantRead(s)
	if err != nil {
		return err
	}
	defer revoke()
	switch {
	case s.Stat.IsDir():
		if err := unix.Mkdirat(at, base, 0o700); err != nil {
			return store.PathError("mkdir", name, err)
		}
		if err := m.setPlacement(name, parent, s); err != nil {
			return err
		}
		dir, err := store.OpenIn(m.out, name, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer dir.Close()
		return m.dir(name, dir, s)
	case s.Stat.Nlink > 1:
		if first, ok := m.link[inode{s.Top, s.Stat.Ino}]; ok {
			return m.hardLink(first, at, base)
		}
		m.link[inode{s.Top, s.Stat.Ino}] = name
	}
	if s.data == s.Top && s.Stat.IsRegular() {
		return m.copyFile(at, name, s)
	}
	if err := m.special(at, base, s); err != nil {
		return err
	}
	if err := m.setPlacement(name, parent, s); err != nil {
		return err
	}
	return m.finish(name, s)
}

// hardLink makes base in the open directory dir another hard link to the file at the path first of the merged
// layer.
func (m *merger) hardLink(first string, dir int, base string) error {
	node, err := store.OpenIn(m.out, first, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer node.Close()
	return store.PathError("link", base, unix.Linkat(unix.AT_FDCWD, vfs.FDPath(node), dir, base, unix.AT_SYMLINK_FOLLOW))
}

// special makes the entry base, which is not a directory, in the directory dir of the merged layer: a file
// with its content, a symbolic link, fifo, socket, device or whiteout.
func (m *merger) special(dir int, base string, s *Stack) error {
	switch s.Stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return m.regular(dir, base, s)
	case unix.S_IFLNK:
		target, err := m.target(s)
		if err != nil {
			return err
		}
		return store.PathError("symlink", base, unix.Symlinkat(target, dir, base))
	default:
		return store.PathError("mknod", base, unix.Mknodat(dir, base, s.Stat.Mode&unix.S_IFMT|0o600, int(s.Stat.Rdev)))
	}
}

func (m *merger) target(s *Stack) (string, error) {
	node, err := store.OpenIn(m.roots[s.Top], s.at[s.Top], unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return "", err
	}
	defer node.Close()
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(node.Fd()), "", buf)
	return string(buf[:max(n, 0)]), store.PathError("readlink", s.at[s.Top], err)
}

// copyFile makes the regular file name in the directory dir of the merged layer, with the content and the attributes
// that it has in one layer. Such a file has none of the attributes of overlayfs itself that setPlacement sets.
func (m *merger) copyFile(dir int, name string, s *Stack) error {
	dst, err := create(dir, path.Base(name))
	if err != nil {
		return err
	}
	defer dst.Close()
	src, err := store.OpenIn(m.roots[s.Top], s.at[s.Top], unix.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer src.Close()
	if err := m.copyContent(dst, src, s.Stat); err != nil {
		return err
	}
	return m.finishOpen(name, src, dst, s)
}

// smallFile is the size in bytes up to which copyContent reads a file at once.
const smallFile = 64 << 10

// copyContent copies the content of src, with the attributes st, to the empty file dst.
func (m *merger) copyContent(dst, src *os.File, st vfs.Stat) error {
	if st.Size == 0 {
		return nil
	}
	if m.noReflink && st.Size <= smallFile {
		if m.small == nil {
			m.small = make([]byte, smallFile)
		}
		if hole, err := unix.Seek(int(src.Fd()), 0, unix.SEEK_HOLE); err == nil && hole >= st.Size {
			n, err := unix.Pread(int(src.Fd()), m.small[:st.Size], 0)
			if err == nil && int64(n) == st.Size {
				_, err = dst.Write(m.small[:n])
				return err
			}
		}
	}
	cloned, err := vfs.CopyFile(dst, src)
	m.noReflink = !cloned
	return err
}

// create makes the regular file base in the directory dir of the merged layer, and opens it for writing.
func create(dir int, base string) (*os.File, error) {
	fd, err := unix.Openat(dir, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, store.PathError("create", base, err)
	}
	return os.NewFile(uintptr(fd), base), nil
}

// regular makes the regular file base in the directory dir of the merged layer, with its content. If the
// content is in the lower tree, the file is a hole of the same size, since overlayfs reads it from there.
func (m *merger) regular(dir int, base string, s *Stack) error {
	dst, err := create(dir, base)
	if err != nil {
		return err
	}
	defer dst.Close()
	if s.data < 0 {
		return dst.Truncate(s.Stat.Size)
	}
	if s.Stat.Size == 0 {
		return nil
	}
	src, err := store.OpenIn(m.roots[s.data], s.at[s.data], unix.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer src.Close()
	_, err = vfs.CopyFile(dst, src)
	return err
}
