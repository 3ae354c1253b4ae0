package layer

import (
	"errors"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// xattr reads an extended attribute. unix.ENODATA: there is none. The tree below alone is no layer of an overlay,
// and an overlay above it asks each file that it meets whether it is one (ovl_check_metacopy_xattr): it has
// none of these attributes, whatever is kept there.
func (f *FS) xattr(n *node, name string) (string, error) {
	f.mu.RLock()
	value, ok := n.xattrs[name]
	changed := n.changed
	f.mu.RUnlock()
	if ok {
		return value, nil
	}
	if changed || f.Bare() && kernel.OverlayXattr(name) {
		return "", unix.ENODATA
	}
	err := f.at(n.from, func(dirfd int, file string) error {
		b, err := kernel.GetXattr(dirfd, file, name)
		value = string(b)
		if errors.Is(err, unix.EOPNOTSUPP) && (name == aclAccess || name == aclDefault) {
			err = unix.ENODATA // the kernel would let nobody but the owner pass
		}
		return err
	})
	return value, err
}

// xattrNames lists the extended attributes of a node.
func (f *FS) xattrNames(n *node) (names []string, err error) {
	f.mu.RLock()
	changed := n.changed
	if changed {
		names = slices.Sorted(maps.Keys(n.xattrs))
	}
	f.mu.RUnlock()
	if changed {
		return names, nil
	}
	err = f.at(n.from, func(dirfd int, file string) (err error) {
		names, err = kernel.ListXattrs(dirfd, file)
		return err
	})
	if f.Bare() {
		names = slices.DeleteFunc(names, kernel.OverlayXattr)
	}
	return names, err
}

// setXattr writes an extended attribute; flags are those of setxattr(2).
func (f *FS) setXattr(n *node, name, value string, flags uint32, dropSetGID bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.change(n); err != nil {
		return err
	}
	_, there := n.xattrs[name]
	switch {
	case there && flags&unix.XATTR_CREATE != 0:
		return unix.EEXIST
	case !there && flags&unix.XATTR_REPLACE != 0:
		return unix.ENODATA
	}
	if err := f.room(int64(nameRecord+len(name)+len(value)), 0); err != nil {
		return err
	}
	n.ctime = now()
	if name == aclAccess {
		mode, whole, ok := aclMode(value)
		if !ok {
			return unix.EINVAL
		}
		n.mode = n.mode&^0o777 | mode&0o777
		if dropSetGID {
			n.mode &^= unix.S_ISGID
		}
		if whole {
			n.delXattr(name)
			return nil
		}
	}
	if n.xattrs == nil {
		n.xattrs = map[string]string{}
	}
	n.xattrs[name] = value
	return nil
}

// removeXattr takes an extended attribute away. unix.ENODATA: there is none.
func (f *FS) removeXattr(n *node, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.change(n); err != nil {
		return err
	}
	if _, ok := n.xattrs[name]; !ok {
		return unix.ENODATA
	}
	n.delXattr(name)
	n.ctime = now()
	return nil
}

func (n *node) delXattr(name string) { delete(n.xattrs, name) }
