package vfs

import (
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// The extended attributes of name under dirfd, of the link itself where name is
// a symbolic link; an empty name means dirfd. Errors are *os.PathError.

const maxXattr = 64 << 10 // XATTR_SIZE_MAX and XATTR_LIST_MAX of linux/limits.h

// ListXattrs names the attributes that this process may see. A filesystem
// without any has none. XFS lists an access control list twice to root, as system.posix_acl_* and as it has it on the disk
// (trusted.SGI_ACL_*, fs/xfs/xfs_xattr.c): the latter is left out, since no other filesystem takes it for
// one. Cost: one system call for most nodes.
func ListXattrs(dirfd int, name string) ([]string, error) {
	list, err := xattrRead(dirfd, name, "")
	if err == unix.EOPNOTSUPP {
		return nil, nil
	}
	if err != nil || len(list) == 0 {
		return nil, xattrError("listxattr", name, "", err)
	}
	names := strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00")
	return slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, "trusted.SGI_ACL_") }), nil
}

// OverlayXattr reports whether an attribute is one that overlayfs keeps for itself on a layer's files.
// It shows none of them to who looks through it (Documentation/filesystems/overlayfs.rst).
func OverlayXattr(name string) bool {
	return strings.HasPrefix(name, "trusted.overlay.") || strings.HasPrefix(name, "user.overlay.")
}

// GetXattr reads an attribute. unix.ENODATA: there is none of that name.
func GetXattr(dirfd int, name, attr string) ([]byte, error) {
	value, err := xattrRead(dirfd, name, attr)
	return value, xattrError("getxattr", name, attr, err)
}

// Xattrs reads all attributes that this process may see; nil when there are
// none. One that vanishes, or may not be read, is left out.
func Xattrs(dirfd int, name string) (map[string]string, error) {
	names, err := ListXattrs(dirfd, name)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	all := make(map[string]string, len(names))
	for _, attr := range names {
		value, err := xattrRead(dirfd, name, attr)
		switch err {
		case nil:
			all[attr] = string(value)
		case unix.ENODATA, unix.EPERM, unix.EACCES, unix.EOPNOTSUPP:
		default:
			return nil, xattrError("getxattr", name, attr, err)
		}
	}
	return all, nil
}

func xattrError(op, name, attr string, err error) error {
	if err == nil {
		return nil
	}
	if attr != "" {
		op += " " + attr
	}
	return &os.PathError{Op: op, Path: name, Err: err}
}

// xattrRead reads the attribute attr, or the list of names when attr is "".
func xattrRead(dirfd int, name, attr string) ([]byte, error) {
	var small [512]byte
	n, err := xattrReadInto(dirfd, name, attr, small[:])
	if err == unix.ERANGE {
		big := make([]byte, maxXattr)
		n, err = xattrReadInto(dirfd, name, attr, big)
		return big[:max(n, 0)], err
	}
	return append([]byte{}, small[:max(n, 0)]...), err
}
