package lower

import (
	"strings"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A Ref refers to an inode of the lower directory tree by its directory, name and identity. It never changes.
type Ref struct {
	Dir  *Ref // nil for the root
	Name string
	logfile.Identity
}

// IsEntry reports whether o refers to the entry called name in the lower directory dir. It compares names and
// reads nothing.
func (o *Ref) IsEntry(dir *Ref, name string) bool {
	return o.Dir != nil && o.Name == name && (o.Dir == dir || o.Dir.Path() == dir.Path())
}

// Path returns the path of the lower inode o relative to the root of the lower directory tree; "." is the
// root itself. Cost: two allocations, however deep o is, and a step for each name.
func (o *Ref) Path() string {
	if o.Dir == nil {
		return "."
	}
	size := -1 // of all names with a slash before each but the first
	for at := o; at.Dir != nil; at = at.Dir {
		size += len(at.Name) + 1
	}
	path := make([]byte, size)
	for end := size; ; o = o.Dir {
		start := end - len(o.Name)
		copy(path[start:end], o.Name)
		if start == 0 {
			return string(path)
		}
		end = start - 1
		path[end] = '/'
	}
}

// IdentityOf returns the identity of the lower inode with these attributes, by which it differs from a later
// inode with the same number.
func (t *Tree) IdentityOf(st *vfs.Stat) logfile.Identity {
	return t.OmitRootDev(logfile.Identity{Ino: st.Ino, Dev: uint32(st.Dev), Born: logfile.At(st.BTime.Sec, st.BTime.Nsec)})
}

// OmitRootDev returns id with device number 0 if the number is that of the lower's root: btrfs, ZFS and tmpfs
// get a new number at each mount, and identities in logs must stay valid.
func (t *Tree) OmitRootDev(id logfile.Identity) logfile.Identity {
	if id.Dev == t.dev {
		id.Dev = 0
	}
	return id
}

// RefAt returns the Ref of the lower inode at path. Its parents have names but no identity, which avoids a
// stat(2) for each. refs caches the Refs made so far.
func RefAt(refs map[string]*Ref, path string) *Ref {
	if o := refs[path]; o != nil {
		return o
	}
	dir, name := ".", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir, name = path[:i], path[i+1:]
	}
	o := &Ref{Dir: RefAt(refs, dir), Name: name}
	refs[path] = o
	return o
}

// Readlink returns the target of the symbolic link o in the lower directory tree.
func (t *Tree) Readlink(o *Ref) (target string, err error) {
	err = t.With(o, func(dir int, name string) error {
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(dir, name, buf)
		target = string(buf[:max(n, 0)])
		return err
	})
	return target, err
}
