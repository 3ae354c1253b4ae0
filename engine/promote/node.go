package promote

import (
	"io/fs"
	"maps"
	"os"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// An ident identifies a node and its state, without the change time, which a rename sets.
type ident struct {
	ino            uint64
	btime, mtime   vfs.Timestamp
	mode, uid, gid uint32
	size           int64
}

func identOf(st *vfs.Stat) ident {
	i := ident{st.Ino, st.BTime, st.MTime, st.Mode, st.UID, st.GID, st.Size}
	if st.IsDir() {
		i.size = 0
	}
	return i
}

// is reports whether st is this node in this state. The owner's permissions of a directory do
// not count, because a promotion widens them meanwhile.
func (i ident) is(st *vfs.Stat) bool {
	now := identOf(st)
	if st.IsDir() {
		i.mode |= unix.S_IRWXU
		now.mode |= unix.S_IRWXU
	}
	return i == now
}

// sameNode reports whether st is this node, in any state.
func (i ident) sameNode(st *vfs.Stat) bool { return i.ino == st.Ino && i.btime == st.BTime }

// readNode returns the node and the stat of name in an open directory.
func readNode(dir *os.File, name string) (*diff.Node, vfs.Stat, error) {
	fd := int(dir.Fd())
	st, err := vfs.Lstat(fd, name)
	if err != nil {
		return nil, st, err
	}
	n := &diff.Node{
		Mode: st.FileMode(), UID: st.UID, GID: st.GID, MTime: st.MTime.Time(), CTime: st.CTime.Time(),
		Ino: st.Ino, Dev: st.Dev, NLink: st.Nlink,
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		n.Size = st.Size
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax+1)
		l, err := vfs.Readlink(fd, name, buf)
		if err != nil {
			return nil, st, &os.PathError{Op: "readlink", Path: name, Err: err}
		}
		n.Target, n.Size = string(buf[:l]), int64(l)
	case unix.S_IFCHR, unix.S_IFBLK:
		n.Rdev = st.Rdev
	}
	n.Xattrs, err = vfs.Xattrs(fd, name)
	return n, st, err
}

// sameMetadata reports whether two nodes have equal metadata and size. The times of directories and
// attributes that the system maintains do not count.
func sameMetadata(a, b *diff.Node, times bool) bool {
	switch {
	case a.Mode != b.Mode, a.UID != b.UID, a.GID != b.GID, a.Target != b.Target, a.Rdev != b.Rdev:
		return false
	case a.Mode.IsRegular() && a.Size != b.Size:
		return false
	case times && !a.Mode.IsDir() && !a.MTime.Equal(b.MTime):
		return false
	}
	return maps.Equal(promotedXattrs(a.Xattrs), promotedXattrs(b.Xattrs))
}

// promotedXattrs returns the attributes that a promotion copies.
func promotedXattrs(all map[string]string) map[string]string {
	promoted := make(map[string]string, len(all))
	for name, value := range all {
		if !diff.SystemXattr(name) {
			promoted[name] = value
		}
	}
	return promoted
}

// permissions returns the lower twelve bits of a mode.
func permissions(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	for _, b := range []struct {
		mode fs.FileMode
		bit  uint32
	}{{fs.ModeSetuid, unix.S_ISUID}, {fs.ModeSetgid, unix.S_ISGID}, {fs.ModeSticky, unix.S_ISVTX}} {
		if m&b.mode != 0 {
			bits |= b.bit
		}
	}
	return bits
}

// isDir reports whether n is a directory; n may be nil.
func isDir(n *diff.Node) bool { return n != nil && n.Mode.IsDir() }

// shared reports whether a node may have more than one name; n may be nil.
func shared(n *diff.Node) bool { return n != nil && n.NLink > 1 && !n.Mode.IsDir() }

func split(path string) (dir, name string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return ".", path
}

func join(dir, name string) string {
	if dir == "." || dir == "" {
		return name
	}
	return dir + "/" + name
}
