package idmap

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// An idMap is the difference between an id as shown and the id on disk.
type idMap uint32

// Size is the number of users and of groups that are mapped.
const Size = 1 << 16

// nobody is the invalid id. The kernel shows it as the owner, and grants it nothing.
const nobody = 1<<32 - 1

// toShown returns the id to show for one on disk.
func (s idMap) toShown(id uint32) uint32 {
	if id >= Size {
		return nobody
	}
	return uint32(s) + id
}

// toDisk returns the id on disk for one that is shown. EOVERFLOW means that there is none.
func (s idMap) toDisk(id uint32) (uint32, error) {
	if id < uint32(s) || id-uint32(s) >= Size {
		return 0, unix.EOVERFLOW
	}
	return id - uint32(s), nil
}

// toShownStrict is toShown for places where no unmapped id may appear.
func (s idMap) toShownStrict(id uint32) (uint32, error) {
	if id >= Size {
		return 0, unix.EOVERFLOW
	}
	return s.toShown(id), nil
}

// These extended attributes contain ids.
const (
	aclAccess  = "system.posix_acl_access"
	aclDefault = "system.posix_acl_default"
	capability = "security.capability"
)

func isACL(name string) bool { return name == aclAccess || name == aclDefault }

// mapXattr maps the ids in the value of an extended attribute by by, if it contains any. EOVERFLOW means that
// an id cannot be mapped.
func mapXattr(name string, value []byte, by func(uint32) (uint32, error)) ([]byte, error) {
	if isACL(name) {
		return mapACL(value, by)
	}
	return value, nil
}

// mapACL maps an access control list: a version, then entries of a tag, permissions and an id
// (linux/posix_acl_xattr.h).
func mapACL(list []byte, by func(uint32) (uint32, error)) ([]byte, error) {
	const head, size, user, group = 4, 8, 0x02, 0x08
	if len(list) < head || (len(list)-head)%size != 0 {
		return nil, unix.EINVAL
	}
	list = append([]byte(nil), list...)
	for e := list[head:]; len(e) > 0; e = e[size:] {
		if tag := binary.LittleEndian.Uint16(e); tag != user && tag != group {
			continue
		}
		id, err := by(binary.LittleEndian.Uint32(e[4:]))
		if err != nil {
			return nil, err
		}
		binary.LittleEndian.PutUint32(e[4:], id)
	}
	return list, nil
}

// File capabilities are valid in the user namespace whose root they name, or in that of the host if they name
// none: revisions 3 and 2 of struct vfs_ns_cap_data of linux/capability.h. Shown capabilities name the mapped
// root.
const (
	capRevision   = 0xff000000
	capRevision2  = 0x02000000
	capRevision3  = 0x03000000
	capSize2      = 20
	capSize3      = 24
	capRootOffset = 20
)

// capsToShown converts capabilities on disk to those to show.
func (s idMap) capsToShown(v []byte) ([]byte, error) {
	root := uint32(0)
	switch {
	case isCaps(v, capRevision3, capSize3):
		root = binary.LittleEndian.Uint32(v[capRootOffset:])
	case !isCaps(v, capRevision2, capSize2):
		return v, nil // the kernel judges an unknown format
	}
	root, err := s.toShownStrict(root)
	if err != nil {
		return nil, err
	}
	out := binary.LittleEndian.AppendUint32(append([]byte(nil), v[:capSize2]...), root)
	setRevision(out, capRevision3)
	return out, nil
}

// capsToDisk converts shown capabilities to those on disk: those of the mapped root become the host's.
func (s idMap) capsToDisk(v []byte) ([]byte, error) {
	root := uint32(0) // the host's
	switch {
	case isCaps(v, capRevision3, capSize3):
		root = binary.LittleEndian.Uint32(v[capRootOffset:])
	case !isCaps(v, capRevision2, capSize2):
		return nil, unix.EINVAL
	}
	root, err := s.toDisk(root)
	if err != nil {
		return nil, err
	}
	if root == 0 {
		out := append([]byte(nil), v[:capSize2]...)
		setRevision(out, capRevision2)
		return out, nil
	}
	out := binary.LittleEndian.AppendUint32(append([]byte(nil), v[:capSize2]...), root)
	setRevision(out, capRevision3)
	return out, nil
}

func isCaps(v []byte, revision uint32, size int) bool {
	return len(v) == size && binary.LittleEndian.Uint32(v)&capRevision == revision
}

func setRevision(v []byte, revision uint32) {
	binary.LittleEndian.PutUint32(v, binary.LittleEndian.Uint32(v)&^uint32(capRevision)|revision)
}
