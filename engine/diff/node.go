package diff

import (
	"slices"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// NodeOf returns the Node that a stat describes, without link target and extended attributes.
func NodeOf(st *vfs.Stat) *Node {
	n := &Node{
		Mode: st.FileMode(), UID: st.UID, GID: st.GID, MTime: st.MTime.Time(), CTime: st.CTime.Time(),
		Ino: st.Ino, Dev: st.Dev, NLink: st.Nlink,
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFLNK:
		n.Size = st.Size
	case unix.S_IFCHR, unix.S_IFBLK:
		n.Rdev = st.Rdev
	}
	return n
}

// newNode returns the Node (type, metadata, identity) of the file name in the directory dir, or of dir itself
// for "". st is its stat, and x its extended attributes, nil to read them.
func (w *worker) newNode(dir int, name string, st *vfs.Stat, x *xattrs) (*Node, error) {
	n := NodeOf(st)
	if st.IsSymlink() {
		var err error
		if n.Target, err = readlink(dir, name, st.Size); err != nil {
			return nil, err
		}
		n.Size = int64(len(n.Target))
	}
	if x == nil {
		read, err := w.xattrs(dir, name)
		if err != nil {
			return nil, err
		}
		x = &read
	}
	n.Xattrs = x.values
	return n, nil
}

// xattrs holds the extended attributes of a file: readable ones with their values, and the names of others.
type xattrs struct {
	values map[string]string
	denied []string // names whose value this process may not read, sorted
}

// xattrs reads the extended attributes of the file name in the directory dir, or of dir itself for "".
func (w *worker) xattrs(dir int, name string) (xattrs, error) {
	var x xattrs
	names, err := vfs.ListXattrs(dir, name)
	if err != nil {
		return x, err
	}
	for _, n := range names {
		if w.opt.OverlayViews && vfs.OverlayXattr(n) {
			continue
		}
		value, err := vfs.GetXattr(dir, name, n)
		switch {
		case errno(err) == unix.ENODATA:
		case denied(err):
			x.denied = append(x.denied, n)
		case err != nil:
			return x, err
		default:
			if x.values == nil {
				x.values = make(map[string]string, len(names))
			}
			x.values[n] = string(value)
		}
	}
	slices.Sort(x.denied)
	return x, nil
}

// SystemXattr reports whether this extended attribute is maintained by security modules or overlayfs. A
// change of one is no change by the user; it is neither merged nor promoted.
func SystemXattr(name string) bool {
	switch name {
	case "security.selinux", "security.ima", "security.evm", "security.SMACK64":
		return true
	}
	return vfs.OverlayXattr(name)
}
