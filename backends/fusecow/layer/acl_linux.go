package layer

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Access control lists are stored as extended attributes: a version, then entries of a tag, permissions and an
// id (linux/posix_acl_xattr.h). The kernel checks them, but the filesystem has to keep list and mode
// consistent.
const (
	aclAccess  = "system.posix_acl_access"
	aclDefault = "system.posix_acl_default"

	aclUserObj  = 0x01
	aclGroupObj = 0x04
	aclMask     = 0x10
	aclOther    = 0x20
)

// eachACL calls do with the tag and the permissions of each entry, sets the permissions to the result, and
// reports whether the list was valid.
func eachACL(list []byte, do func(tag, perm uint16) uint16) bool {
	if len(list) < 4 || (len(list)-4)%8 != 0 || binary.LittleEndian.Uint32(list) != 2 {
		return false
	}
	for e := list[4:]; len(e) > 0; e = e[8:] {
		perm := do(binary.LittleEndian.Uint16(e), binary.LittleEndian.Uint16(e[2:]))
		binary.LittleEndian.PutUint16(e[2:], perm)
	}
	return true
}

// aclMode returns the permission bits that a list stands for, and whether they express the whole list.
func aclMode(list string) (mode uint32, whole, ok bool) {
	whole = true
	var group, mask uint32
	masked := false
	ok = eachACL([]byte(list), func(tag, perm uint16) uint16 {
		switch tag {
		case aclUserObj:
			mode |= uint32(perm) << 6
		case aclGroupObj:
			group = uint32(perm)
		case aclMask:
			mask, masked, whole = uint32(perm), true, false
		case aclOther:
			mode |= uint32(perm)
		default:
			whole = false
		}
		return perm
	})
	if masked {
		group = mask
	}
	return mode | group<<3, whole, ok
}

// aclWith returns list with the permissions of mode.
func aclWith(list string, mode uint32) string {
	group := uint16(aclGroupObj)
	b := []byte(list)
	eachACL(b, func(tag, perm uint16) uint16 {
		if tag == aclMask {
			group = aclMask
		}
		return perm
	})
	eachACL(b, func(tag, perm uint16) uint16 {
		switch tag {
		case aclUserObj:
			return uint16(mode >> 6 & 7)
		case group:
			return uint16(mode >> 3 & 7)
		case aclOther:
			return uint16(mode & 7)
		}
		return perm
	})
	return string(b)
}

// inherit applies the default ACL of dir to a new inode, or else the umask.
func (f *FS) inherit(dir, n *inode, umask uint32) {
	list, ok := dir.xattrs[aclDefault]
	if !ok || n.mode&unix.S_IFMT == unix.S_IFLNK {
		if n.mode&unix.S_IFMT != unix.S_IFLNK {
			n.mode &^= umask & 0o777
		}
		return
	}
	mode, _, _ := aclMode(list)
	n.mode = n.mode&^0o777 | n.mode&mode&0o777
	list = aclWith(list, n.mode)
	if n.isDir() {
		n.xattrs = map[string]string{aclDefault: dir.xattrs[aclDefault]}
	}
	if _, whole, _ := aclMode(list); !whole {
		if n.xattrs == nil {
			n.xattrs = map[string]string{}
		}
		n.xattrs[aclAccess] = list
	}
}

// chmod sets the permissions of a dirty inode, and of its ACL.
func (n *inode) chmod(mode uint32) {
	n.mode = n.mode&unix.S_IFMT | mode&0o7777
	if list, ok := n.xattrs[aclAccess]; ok {
		n.xattrs[aclAccess] = aclWith(list, mode)
	}
}
