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

// ListXattrs returns the names of the extended attributes of name in dirfd that this process may see; none on
// a filesystem without attributes. It leaves out XFS's internal copies of access control lists
// (trusted.SGI_ACL_*, fs/xfs/xfs_xattr.c), which no other filesystem accepts. Cost: one system call for most
// files.
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

// OverlayXattr reports whether the extended attribute name is one that overlayfs itself stores on the files
// of a layer and hides from users of the mount (Documentation/filesystems/overlayfs.rst).
func OverlayXattr(name string) bool {
	return strings.HasPrefix(name, "trusted.overlay.") || strings.HasPrefix(name, "user.overlay.")
}

// GetXattr returns the value of the extended attribute attr of the file name in dirfd. unix.ENODATA: the file
// has no such attribute.
func GetXattr(dirfd int, name, attr string) ([]byte, error) {
	value, err := xattrRead(dirfd, name, attr)
	return value, xattrError("getxattr", name, attr, err)
}

// Xattrs returns all extended attributes, names and values, of the file name in dirfd that this process may
// read; nil if there are none. It leaves out an attribute that another process removes meanwhile.
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

// xattrRead returns the value of the extended attribute attr of a file, or if attr is "" the names of all
// attributes, each ended by a NUL.
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
