// Package nodes handles single nodes of a tree for package promote, through open directories: it
// identifies, compares, moves and removes them, and sets their metadata.
//
// Its promises: it follows no symbolic link and does not leave the tree; a move replaces nothing that another
// program put in its way, and where the kernel cannot promise that, as little as spareSuffix says.
//
// The package must not know promotions, journals or stages beyond an open directory.
package nodes

import (
	"errors"
	"io/fs"
	"maps"
	"os"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// An Ident identifies a node and its state, so that a promotion notices if another program replaces or
// changes it. The change time is not part of it, because a rename sets that.
type Ident struct {
	Ino            uint64
	BTime, MTime   vfs.Timestamp
	Mode, UID, GID uint32
	Size           int64
}

// IdentOf returns the identity (inode, times, mode, owner, size) of the node that st describes, by which a
// promotion recognises it. The size of a directory does not count.
func IdentOf(st *vfs.Stat) Ident {
	i := Ident{st.Ino, st.BTime, st.MTime, st.Mode, st.UID, st.GID, st.Size}
	if st.IsDir() {
		i.Size = 0
	}
	return i
}

// Is reports whether st describes the inode of this identity with the same content and metadata. The owner's
// permissions of a directory do not count, because a promotion widens them for a while.
func (i Ident) Is(st *vfs.Stat) bool {
	now := IdentOf(st)
	if st.IsDir() {
		i.Mode |= unix.S_IRWXU
		now.Mode |= unix.S_IRWXU
	}
	return i == now
}

// SameNode reports whether st describes the same inode as this identity, even if its content or metadata has
// changed since.
func (i Ident) SameNode(st *vfs.Stat) bool { return i.Ino == st.Ino && i.BTime == st.BTime }

// With returns the identity that the file or directory will have after its metadata was set to m.
func (i Ident) With(m Meta) Ident {
	if m.What&diff.Mode != 0 {
		i.Mode = i.Mode&^0o7777 | m.Mode
	}
	if m.What&diff.Owner != 0 {
		i.UID, i.GID = m.UID, m.GID
	}
	if m.What&diff.Time != 0 {
		i.MTime = m.MTime
	}
	return i
}

// Open opens a node of any type with O_PATH, so that opening has no effect on it; the caller closes it.
func Open(dir *os.File, name string) (*os.File, error) {
	return vfs.OpenAt(int(dir.Fd()), name, vfs.OPath|unix.O_NOFOLLOW, 0)
}

// Missing reports whether an error means that a path does not exist, or that one of its parents is not a
// directory but, say, a symbolic link.
func Missing(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// StatOrNil returns the inode metadata of name in an open directory, or nil if it does not exist.
func StatOrNil(dir *os.File, name string) (*vfs.Stat, error) {
	st, err := vfs.Lstat(int(dir.Fd()), name)
	if Missing(err) {
		return nil, nil
	}
	return &st, err
}

// Read returns the node name of an open directory in the form of package diff, and its stat.
func Read(dir *os.File, name string) (*diff.Node, vfs.Stat, error) {
	fd := int(dir.Fd())
	st, err := vfs.Lstat(fd, name)
	if err != nil {
		return nil, st, err
	}
	n := diff.NodeOf(&st)
	if st.IsSymlink() {
		buf := make([]byte, unix.PathMax+1)
		l, err := vfs.Readlink(fd, name, buf)
		if err != nil {
			return nil, st, &os.PathError{Op: "readlink", Path: name, Err: err}
		}
		n.Target, n.Size = string(buf[:l]), int64(l)
	}
	n.Xattrs, err = vfs.Xattrs(fd, name)
	return n, st, err
}

// SameMetadata reports whether two nodes have equal metadata and size; with times, also equal modification
// times. Times of directories and xattrs that the system maintains do not count.
func SameMetadata(a, b *diff.Node, times bool) bool {
	switch {
	case a.Mode != b.Mode, a.UID != b.UID, a.GID != b.GID, a.Target != b.Target, a.Rdev != b.Rdev:
		return false
	case a.Mode.IsRegular() && a.Size != b.Size:
		return false
	case times && !a.Mode.IsDir() && !a.MTime.Equal(b.MTime):
		return false
	}
	return maps.Equal(PromotedXattrs(a.Xattrs), PromotedXattrs(b.Xattrs))
}

// PromotedXattrs returns those of the extended attributes that a promotion copies: not those that the system
// maintains.
func PromotedXattrs(all map[string]string) map[string]string {
	promoted := make(map[string]string, len(all))
	for name, value := range all {
		if !diff.SystemXattr(name) {
			promoted[name] = value
		}
	}
	return promoted
}

// permissions returns the lower twelve bits of a mode: permissions, set-id bits and sticky bit, as in
// stat(2).
func permissions(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	for _, b := range []struct {
		mode fs.FileMode
		bit  uint32
	}{{fs.ModeSetuid, unix.S_ISUID}, {fs.ModeSetgid, unix.S_ISGID}, {fs.ModeSticky, unix.S_ISVTX}} {
		if m&b.mode != 0 {
			bits |= b.bit
		}
	}
	return bits
}

// Join returns the path of name in a directory; the name alone if dir is "" or ".".
func Join(dir, name string) string {
	if dir == "." || dir == "" {
		return name
	}
	return dir + "/" + name
}

// Meta is metadata that a promotion sets on a file or directory. What says which of the fields [Set] sets.
type Meta struct {
	What           diff.Aspect // the aspects to set
	Mode, UID, GID uint32
	MTime          vfs.Timestamp
	Xattrs         map[string]string
}

// Everything is the set of all aspects of metadata that a Meta can set.
const Everything = diff.Mode | diff.Owner | diff.Time | diff.Xattrs

// MetaOf returns the metadata of n, of which Set then sets the aspects in what and those that depend on them:
// a change of owner clears set-id bits and capabilities.
func MetaOf(n *diff.Node, what diff.Aspect) Meta {
	what &= Everything
	if what&diff.Owner != 0 {
		what |= diff.Mode | diff.Xattrs // chown clears set-id bits and capabilities
	}
	return Meta{
		what, permissions(n.Mode), n.UID, n.GID,
		vfs.Timestamp{Sec: n.MTime.Unix(), Nsec: uint32(n.MTime.Nanosecond())},
		PromotedXattrs(n.Xattrs),
	}
}

// Set applies the metadata to an open node; O_PATH suffices. It may be repeated. The order
// matters: chown clears set-id bits and capabilities, and an access control list sets
// permission bits. After an error some aspects may be set.
func (m Meta) Set(f *os.File) error {
	st, err := vfs.Lstat(int(f.Fd()), "")
	if err != nil {
		return err
	}
	settled := st.Mode&0o7777 == m.Mode
	if m.What&diff.Owner != 0 && (st.UID != m.UID || st.GID != m.GID) {
		settled = false
		if err := vfs.SetOwner(int(f.Fd()), int(m.UID), int(m.GID)); err != nil {
			return &os.PathError{Op: "chown", Path: f.Name(), Err: err}
		}
	}
	if m.What&diff.Xattrs != 0 {
		changed, err := m.setXattrs(f)
		if err != nil {
			return err
		}
		settled = settled && !changed
	}
	if m.What&(diff.Mode|diff.Xattrs) != 0 && !settled && !st.IsSymlink() {
		if err := Chmod(f, m.Mode); err != nil {
			return err
		}
	}
	if m.What&diff.Time != 0 && st.MTime != m.MTime {
		return setTime(f, m.MTime)
	}
	return nil
}

func (m Meta) setXattrs(f *os.File) (changed bool, err error) {
	fd := int(f.Fd())
	now, err := vfs.Xattrs(fd, "")
	if err != nil {
		return changed, err
	}
	for name := range now {
		if _, keep := m.Xattrs[name]; keep || diff.SystemXattr(name) {
			continue
		}
		changed = true
		if err := vfs.RemoveXattr(fd, "", name); err != nil {
			return changed, err
		}
	}
	for name, value := range m.Xattrs {
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

// Chmod sets the permissions of an open file or directory, which may be opened with O_PATH.
func Chmod(f *os.File, mode uint32) error {
	if err := unix.Chmod(vfs.FDPath(f), mode); err != nil {
		return &os.PathError{Op: "chmod", Path: f.Name(), Err: err}
	}
	return nil
}

// SetOldTime restores the modification time of a directory after names in it have changed. Only the
// directory's owner and root may set it (utimensat(2)); in another user's directory the new time stays.
func SetOldTime(f *os.File, t vfs.Timestamp) error {
	err := setTime(f, t)
	if errors.Is(err, unix.EPERM) {
		if st, serr := vfs.Lstat(int(f.Fd()), ""); serr == nil && int(st.UID) != os.Geteuid() {
			return nil
		}
	}
	return err
}

func setTime(f *os.File, t vfs.Timestamp) error {
	if err := vfs.SetTimes(int(f.Fd()), nil, t); err != nil {
		return &os.PathError{Op: "utimensat", Path: f.Name(), Err: err}
	}
	return nil
}
