// Package acl reads and changes POSIX access control lists in the form of extended attributes, for package
// layer: chmod(2) changes a list, and a new file inherits one.
package acl

import "encoding/binary"

// Names of the extended attributes that hold access control lists. The value is a version,
// then entries of a tag, permissions and an id (linux/posix_acl_xattr.h). The kernel checks
// the lists, but the filesystem has to make list and mode agree.
const (
	Access  = "system.posix_acl_access"
	Default = "system.posix_acl_default"

	userObj  = 0x01
	groupObj = 0x04
	maskTag  = 0x10
	other    = 0x20
)

// each calls do with the tag and the permissions of each entry of an access control list, and sets the
// permissions in list to the result. It reports whether the list was valid.
func each(list []byte, do func(tag, perm uint16) uint16) bool {
	if len(list) < 4 || (len(list)-4)%8 != 0 || binary.LittleEndian.Uint32(list) != 2 {
		return false
	}
	for e := list[4:]; len(e) > 0; e = e[8:] {
		perm := do(binary.LittleEndian.Uint16(e), binary.LittleEndian.Uint16(e[2:]))
		binary.LittleEndian.PutUint16(e[2:], perm)
	}
	return true
}

// Mode returns the permission bits that an access control list stands for. whole reports whether these bits
// express the whole list, so that it need not be stored; ok whether it is valid.
func Mode(list string) (mode uint32, whole, ok bool) {
	whole = true
	var group, mask uint32
	masked := false
	ok = each([]byte(list), func(tag, perm uint16) uint16 {
		switch tag {
		case userObj:
			mode |= uint32(perm) << 6
		case groupObj:
			group = uint32(perm)
		case maskTag:
			mask, masked, whole = uint32(perm), true, false
		case other:
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

// WithMode returns the access control list with its permissions changed to those of mode. A file's list must
// change so after chmod(2).
func WithMode(list string, mode uint32) string {
	group := uint16(groupObj)
	b := []byte(list)
	each(b, func(tag, perm uint16) uint16 {
		if tag == maskTag {
			group = maskTag
		}
		return perm
	})
	each(b, func(tag, perm uint16) uint16 {
		switch tag {
		case userObj:
			return uint16(mode >> 6 & 7)
		case group:
			return uint16(mode >> 3 & 7)
		case other:
			return uint16(mode & 7)
		}
		return perm
	})
	return string(b)
}
