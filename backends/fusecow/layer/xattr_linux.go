package layer

import (
	"errors"
	"maps"
	"slices"

	"github.com/snapfs/snapfs/backends/fusecow/layer/acl"
	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Xattr returns the value of an extended attribute of the inode id, or unix.ENODATA. A filesystem that is the
// lower alone hides overlayfs's own attributes: it is no overlay upper, and an overlay above it checks each
// file for them (ovl_check_metacopy_xattr).
func (f *FS) Xattr(id uint64, name string) (string, error) {
	n, err := f.inodeByID(id)
	if err != nil {
		return "", err
	}
	f.mu.RLock()
	value, ok := n.xattrs[name]
	changed := n.changed
	f.mu.RUnlock()
	if ok {
		return value, nil
	}
	if changed || f.LowerOnly() && vfs.OverlayXattr(name) {
		return "", unix.ENODATA
	}
	err = f.lower.With(n.lower, func(dirfd int, file string) error {
		b, err := vfs.GetXattr(dirfd, file, name)
		value = string(b)
		if errors.Is(err, unix.EOPNOTSUPP) && (name == acl.Access || name == acl.Default) {
			err = unix.ENODATA // with EOPNOTSUPP the kernel would grant access to the owner only
		}
		return err
	})
	return value, err
}

// xattrNames returns the names of all extended attributes of the inode n.
func (f *FS) xattrNames(n *inode) (names []string, err error) {
	f.mu.RLock()
	changed := n.changed
	if changed {
		names = slices.Sorted(maps.Keys(n.xattrs))
	}
	f.mu.RUnlock()
	if changed {
		return names, nil
	}
	err = f.lower.With(n.lower, func(dirfd int, file string) (err error) {
		names, err = vfs.ListXattrs(dirfd, file)
		return err
	})
	if f.LowerOnly() {
		names = slices.DeleteFunc(names, vfs.OverlayXattr)
	}
	return names, err
}

// SetXattr does setxattr(2) with flags on the inode id. With dropSetGID an ACL clears the set-gid bit.
func (f *FS) SetXattr(id uint64, name, value string, flags uint32, dropSetGID bool) error {
	n, err := f.inodeByID(id)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.makeDirty(n); err != nil {
		return err
	}
	_, there := n.xattrs[name]
	switch {
	case there && flags&unix.XATTR_CREATE != 0:
		return unix.EEXIST
	case !there && flags&unix.XATTR_REPLACE != 0:
		return unix.ENODATA
	}
	if err := f.checkLogSpace(int64(nameRecordSize+len(name)+len(value)), 0); err != nil {
		return err
	}
	n.ctime = logfile.Now()
	if name == acl.Access {
		mode, whole, ok := acl.Mode(value)
		if !ok {
			return unix.EINVAL
		}
		n.mode = n.mode&^0o777 | mode&0o777
		if dropSetGID {
			n.mode &^= unix.S_ISGID
		}
		if whole {
			delete(n.xattrs, name)
			return nil
		}
	}
	if n.xattrs == nil {
		n.xattrs = map[string]string{}
	}
	n.xattrs[name] = value
	return nil
}

// RemoveXattr removes an extended attribute of the inode id, or returns unix.ENODATA.
func (f *FS) RemoveXattr(id uint64, name string) error {
	n, err := f.inodeByID(id)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.makeDirty(n); err != nil {
		return err
	}
	if _, ok := n.xattrs[name]; !ok {
		return unix.ENODATA
	}
	delete(n.xattrs, name)
	n.ctime = logfile.Now()
	return nil
}

// inherit gives the new inode n the default ACL of its directory dir, or else applies the umask to its mode.
func (f *FS) inherit(dir, n *inode, umask uint32) {
	list, ok := dir.xattrs[acl.Default]
	if !ok || n.mode&unix.S_IFMT == unix.S_IFLNK {
		if n.mode&unix.S_IFMT != unix.S_IFLNK {
			n.mode &^= umask & 0o777
		}
		return
	}
	mode, _, _ := acl.Mode(list)
	n.mode = n.mode&^0o777 | n.mode&mode&0o777
	list = acl.WithMode(list, n.mode)
	if n.isDir() {
		n.xattrs = map[string]string{acl.Default: dir.xattrs[acl.Default]}
	}
	if _, whole, _ := acl.Mode(list); !whole {
		if n.xattrs == nil {
			n.xattrs = map[string]string{}
		}
		n.xattrs[acl.Access] = list
	}
}

// chmod sets the permissions of the dirty inode n, in its mode and in its access control list.
func (n *inode) chmod(mode uint32) {
	n.mode = n.mode&unix.S_IFMT | mode&0o7777
	if list, ok := n.xattrs[acl.Access]; ok {
		n.xattrs[acl.Access] = acl.WithMode(list, mode)
	}
}

// Xattrs returns the names of all extended attributes of the inode id, for listxattr(2).
func (f *FS) Xattrs(id uint64) ([]string, error) {
	n, err := f.inodeByID(id)
	if err != nil {
		return nil, err
	}
	return f.xattrNames(n)
}
