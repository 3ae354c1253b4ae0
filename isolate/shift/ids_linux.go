package shift

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// A shift is the amount by which ids are higher above than below.
type idMap uint32

// Size is how many users and groups there are on either side.
const Size = 1 << 16

// nobody is no user at all, whom the kernel lets own things and do nothing.
const nobody = 1<<32 - 1

// up is the id above of one on disk.
func (s idMap) toShown(id uint32) uint32 {
	if id >= Size {
		return nobody
	}
	return uint32(s) + id
}

// down is the id on disk of one above. EOVERFLOW: it has none.
func (s idMap) toDisk(id uint32) (uint32, error) {
	if id < uint32(s) || id-uint32(s) >= Size {
		return 0, unix.EOVERFLOW
	}
	return id - uint32(s), nil
}

// upStrict is up for what no stranger may stand in.
func (s idMap) toShownStrict(id uint32) (uint32, error) {
	if id >= Size {
		return 0, unix.EOVERFLOW
	}
	return s.toShown(id), nil
}

// The extended attributes that hold ids.
const (
	aclAccess  = "system.posix_acl_access"
	aclDefault = "system.posix_acl_default"
	capability = "security.capability"
)

func isACL(name string) bool { return name == aclAccess || name == aclDefault }

// mapped is the value of an extended attribute with the ids in it as by says. Others
// are as they are. EOVERFLOW: an id has no other.
func mapXattr(name string, value []byte, by func(uint32) (uint32, error)) ([]byte, error) {
	if isACL(name) {
		return mapACL(value, by)
	}
	return value, nil
}

// mappedACL does so for an access control list: a version, then entries of a tag,
// permissions and an id (linux/posix_acl_xattr.h).
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

// A file's capabilities hold in the namespace whose root they name, that of this
// machine where they name none: revisions 3 and 2 of struct vfs_ns_cap_data of
// linux/capability.h. Above they name the root there.
const (
	capRevision   = 0xff000000
	capRevision2  = 0x02000000
	capRevision3  = 0x03000000
	capSize2      = 20
	capSize3      = 24
	capRootOffset = 20
)

// capsUp are capabilities on disk as they are shown.
func (s idMap) capsToShown(v []byte) ([]byte, error) {
	root := uint32(0)
	switch {
	case isCaps(v, capRevision3, capSize3):
		root = binary.LittleEndian.Uint32(v[capRootOffset:])
	case !isCaps(v, capRevision2, capSize2):
		return v, nil // the kernel knows what to say of it
	}
	root, err := s.toShownStrict(root)
	if err != nil {
		return nil, err
	}
	out := binary.LittleEndian.AppendUint32(append([]byte(nil), v[:capSize2]...), root)
	setRevision(out, capRevision3)
	return out, nil
}

// capsDown are capabilities from above as they are written: those of the root there
// are the machine's.
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
