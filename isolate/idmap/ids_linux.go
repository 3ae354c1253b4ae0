package idmap

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// An idMap maps the size user or group ids on disk from disk on to the ids from shown on, which a FUSE mount
// of this package shows in their place.
type idMap struct{ disk, shown, size uint32 }

// Size is how many user ids, and how many group ids, a FUSE mount of this package can map to other ids: those
// from 0 to 65535. Larger ones appear as nobody.
const Size = 1 << 16

// nobody is the invalid user or group id. A FUSE mount with mapped ids shows it as the owner of a file whose
// own id is not mapped; the kernel grants it nothing.
const nobody = 1<<32 - 1

// higherBy returns the [idMap] of a mount that shows each user and group id on disk higher by base, as a
// container with ids of its own needs it.
func higherBy(base uint32) idMap { return idMap{shown: base, size: Size} }

// lowerBy returns the [idMap] of a mount that shows ids on disk from base on lower by base, as the host's
// user sees a container's files. With 0 it changes no id.
func lowerBy(base uint32) idMap {
	if base == 0 {
		return idMap{size: nobody}
	}
	return idMap{disk: base, size: Size}
}

// toShown returns the id that a FUSE mount with mapped ids shows for the user or group id of a file on disk;
// nobody if the id is not mapped.
func (s idMap) toShown(id uint32) uint32 {
	if id < s.disk || id-s.disk >= s.size {
		return nobody
	}
	return id - s.disk + s.shown
}

// toDisk returns the user or group id to store on disk for an id that a process uses in a FUSE mount with
// mapped ids. EOVERFLOW: the id is not mapped.
func (s idMap) toDisk(id uint32) (uint32, error) {
	if id < s.shown || id-s.shown >= s.size {
		return 0, unix.EOVERFLOW
	}
	return id - s.shown + s.disk, nil
}

// toShownStrict returns the id that the mount shows for an id on disk as toShown does, but EOVERFLOW for one
// that is not mapped. It serves ids in extended attributes, such as access control lists: their reading then
// fails.
func (s idMap) toShownStrict(id uint32) (uint32, error) {
	if id = s.toShown(id); id == nobody {
		return 0, unix.EOVERFLOW
	}
	return id, nil
}

// Names of the extended attributes whose values contain user or group ids, which the mount has to map too:
// access control lists and file capabilities.
const (
	aclAccess  = "system.posix_acl_access"
	aclDefault = "system.posix_acl_default"
	capability = "security.capability"
)

func isACL(name string) bool { return name == aclAccess || name == aclDefault }

// mapXattr returns the value of the extended attribute name with each user and group id in it replaced by the
// result of by. EOVERFLOW: an id cannot be mapped.
func mapXattr(name string, value []byte, by func(uint32) (uint32, error)) ([]byte, error) {
	if isACL(name) {
		return mapACL(value, by)
	}
	return value, nil
}

// mapACL returns an access control list with its ids mapped by by. A list is a version, then
// entries of a tag, permissions and an id (linux/posix_acl_xattr.h).
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

// Revisions of struct vfs_ns_cap_data (linux/capability.h), the extended attribute of a file's capabilities.
// Revision 3 names the root of the user namespace in which the capabilities are valid; revision 2 means the
// host's. A FUSE mount with mapped ids shows the mapped root.
const (
	capRevision   = 0xff000000
	capRevision2  = 0x02000000
	capRevision3  = 0x03000000
	capSize2      = 20
	capSize3      = 24
	capRootOffset = 20
)

// capsToShown converts the value v of a file's capabilities on disk to the form in which the mount shows it:
// with the mapped id of the root for whom they are valid.
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

// capsToDisk converts the value of file capabilities that a process sets through the mount to its form on
// disk: those of the mapped root become the host's.
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
