//go:build linux

package overlay

import (
	"context"
	"os"
	"path"

	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A merger writes one layer that is equivalent to several, whatever is below them. Merging one
// layer copies it.
type merger struct {
	layers
	ctx  context.Context
	out  *os.File
	link map[inode]string // the first name of each inode with several links
}

type inode struct {
	layer int
	ino   uint64
}

// merge fills the empty directory dst with the combined content of the layers trees, topmost first.
// Cost: in proportion to their content. After an error dst holds a part.
func merge(ctx context.Context, how mode, trees []string, dst string) error {
	m := merger{layers: layers{mode: how}, ctx: ctx, link: map[inode]string{}}
	defer m.close()
	if err := m.open(trees); err != nil {
		return err
	}
	out, err := vfs.OpenDir(unix.AT_FDCWD, dst)
	if err != nil {
		return err
	}
	defer out.Close()
	m.out = out
	root := m.root()
	if root.stat, err = vfs.Lstat(int(m.roots[0].Fd()), ""); err != nil {
		return err
	}
	if err := fault.Point(ctx, "copy the layer"); err != nil {
		return err
	}
	return m.dir("", &root)
}

// dir fills the existing directory name of the new layer, and then gives it its attributes.
func (m *merger) dir(name string, s *stack) error {
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
		if err := m.put(path.Join(name, n), s, &child); err != nil {
			return err
		}
	}
	return m.finish(name, s)
}

// names lists the names that the layers have in a directory.
func (m *merger) names(s *stack) ([]string, error) {
	seen := map[string]bool{}
	var names []string
	for j, has := range s.has {
		if !has || j >= s.end {
			continue
		}
		dir, err := openIn(m.roots[j], s.at[j], unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
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

// put makes the entry name in the new layer.
func (m *merger) put(name string, parent, s *stack) error {
	dir, err := openIn(m.out, path.Dir(name), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer dir.Close()
	at, base := int(dir.Fd()), path.Base(name)
	switch {
	case s.top < 0:
		return nil // deleted since it was listed, or hidden by a directory above
	case s.whiteout && parent.reachesLower():
		return failed("mknod", name, unix.Mknodat(at, base, unix.S_IFCHR, 0))
	case s.whiteout:
		return nil // the lower tree has nothing to hide
	}
	revoke, err := m.grantRead(s)
	if err != nil {
		return err
	}
	defer revoke()
	switch {
	case s.stat.IsDir():
		if err := unix.Mkdirat(at, base, 0o700); err != nil {
			return failed("mkdir", name, err)
		}
		if err := m.mark(name, parent, s); err != nil {
			return err
		}
		return m.dir(name, s)
	case s.stat.Nlink > 1:
		if first, ok := m.link[inode{s.top, s.stat.Ino}]; ok {
			return m.again(first, at, base)
		}
		m.link[inode{s.top, s.stat.Ino}] = name
	}
	if err := m.node(at, base, s); err != nil {
		return err
	}
	if err := m.mark(name, parent, s); err != nil {
		return err
	}
	return m.finish(name, s)
}

// again makes another hard link to the file that the new layer has as first.
func (m *merger) again(first string, dir int, base string) error {
	node, err := openIn(m.out, first, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer node.Close()
	return failed("link", base, unix.Linkat(unix.AT_FDCWD, vfs.FDPath(node), dir, base, unix.AT_SYMLINK_FOLLOW))
}

// node makes an entry that is no directory, with its content.
func (m *merger) node(dir int, base string, s *stack) error {
	switch s.stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return m.regular(dir, base, s)
	case unix.S_IFLNK:
		target, err := m.target(s)
		if err != nil {
			return err
		}
		return failed("symlink", base, unix.Symlinkat(target, dir, base))
	default:
		return failed("mknod", base, unix.Mknodat(dir, base, s.stat.Mode&unix.S_IFMT|0o600, int(s.stat.Rdev)))
	}
}

func (m *merger) target(s *stack) (string, error) {
	node, err := openIn(m.roots[s.top], s.at[s.top], unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return "", err
	}
	defer node.Close()
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(node.Fd()), "", buf)
	return string(buf[:max(n, 0)]), failed("readlink", s.at[s.top], err)
}

// regular makes a file with its content. If the content is in the lower tree, the file is a hole of
// the same size.
func (m *merger) regular(dir int, base string, s *stack) error {
	fd, err := unix.Openat(dir, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return failed("create", base, err)
	}
	dst := os.NewFile(uintptr(fd), base)
	defer dst.Close()
	if s.data < 0 {
		return dst.Truncate(s.stat.Size)
	}
	if s.stat.Size == 0 {
		return nil
	}
	src, err := openIn(m.roots[s.data], s.at[s.data], unix.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer src.Close()
	_, err = vfs.CopyFile(dst, src)
	return err
}
