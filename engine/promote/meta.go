package promote

import (
	"os"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/vfs"
)

// meta is the metadata of a node.
type meta struct {
	what           diff.Aspect // the aspects to set
	mode, uid, gid uint32
	mtime          vfs.Timestamp
	xattrs         map[string]string
}

const everything = diff.Mode | diff.Owner | diff.Time | diff.Xattrs

func metaOf(n *diff.Node, what diff.Aspect) meta {
	what &= everything
	if what&diff.Owner != 0 {
		what |= diff.Mode | diff.Xattrs // chown clears set-id bits and capabilities
	}
	return meta{
		what, permissions(n.Mode), n.UID, n.GID,
		vfs.Timestamp{Sec: n.MTime.Unix(), Nsec: uint32(n.MTime.Nanosecond())},
		promotedXattrs(n.Xattrs),
	}
}

// set applies the metadata to an open node; O_PATH suffices. It may be repeated. The order
// matters: chown clears set-id bits and capabilities, and an access control list sets
// permission bits.
func (m meta) set(f *os.File) error {
	st, err := vfs.Lstat(int(f.Fd()), "")
	if err != nil {
		return err
	}
	settled := st.Mode&0o7777 == m.mode
	if m.what&diff.Owner != 0 && (st.UID != m.uid || st.GID != m.gid) {
		settled = false
		if err := vfs.SetOwner(int(f.Fd()), int(m.uid), int(m.gid)); err != nil {
			return &os.PathError{Op: "chown", Path: f.Name(), Err: err}
		}
	}
	if m.what&diff.Xattrs != 0 {
		changed, err := m.setXattrs(f)
		if err != nil {
			return err
		}
		settled = settled && !changed
	}
	if m.what&(diff.Mode|diff.Xattrs) != 0 && !settled && !st.IsSymlink() {
		if err := chmod(f, m.mode); err != nil {
			return err
		}
	}
	if m.what&diff.Time != 0 {
		return setTime(f, m.mtime)
	}
	return nil
}

func (m meta) setXattrs(f *os.File) (changed bool, err error) {
	fd := int(f.Fd())
	now, err := vfs.Xattrs(fd, "")
	if err != nil {
		return changed, err
	}
	for name := range now {
		if _, keep := m.xattrs[name]; keep || diff.SystemXattr(name) {
			continue
		}
		changed = true
		if err := vfs.RemoveXattr(fd, "", name); err != nil {
			return changed, err
		}
	}
	for name, value := range m.xattrs {
		if old, has := now[name]; has && old == value {
			continue
		}
		changed = true
		if err := vfs.SetXattr(fd, "", name, []byte(value), 0); err != nil {
			return changed, err
		}
	}
	return changed, nil
}
