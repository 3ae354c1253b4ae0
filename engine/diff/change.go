package diff

import (
	"cmp"
	"io/fs"
	"strings"
	"time"
)

// A Kind says whether a change between two trees added, modified or deleted its path.
type Kind int

// The values of Kind: how a path differs between an old and a new tree.
const (
	Added Kind = iota + 1
	Modified
	Deleted
)

var kindNames = [...]string{Added: "added", Modified: "modified", Deleted: "deleted"}

func (k Kind) String() string { return kindNames[k] }

// Letter returns the one-letter form of a kind of change: A, M or D.
func (k Kind) Letter() string { return strings.ToUpper(kindNames[k][:1]) }

// Aspect is a set of properties, such as content or mode, in which a modified path differs.
type Aspect uint

// The values of Aspect: properties in which the file at one path of two trees can differ.
const (
	Type Aspect = 1 << iota
	Content
	Mode
	Owner
	Time
	Target
	Device
	Xattrs
	Links
)

var aspectNames = []string{"type", "content", "mode", "owner", "time", "target", "device", "xattrs", "links"}

func (a Aspect) String() string { return strings.Join(a.Names(), ",") }

// Names returns the names of the properties in the set, such as "content" and "mode", in a fixed order.
func (a Aspect) Names() []string {
	names := []string{}
	for i, n := range aspectNames {
		if a&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return names
}

// A Node is the file at the path of a change in one of the two trees, old or new: its type, metadata and
// identity.
type Node struct {
	// Mode holds the type, the permission bits, and the set-id and sticky bits.
	Mode     fs.FileMode
	UID, GID uint32
	// Size is the size in bytes of a regular file, or the length of a symbolic link's target.
	Size  int64
	MTime time.Time
	// CTime is not compared; it serves to detect drift.
	CTime time.Time
	// Target is the target of a symbolic link.
	Target string
	// Rdev is the device number of a device node, as in stat(2).
	Rdev uint64
	// Xattrs holds all extended attributes that this process may read, by full name.
	Xattrs map[string]string
	// LinkOf is the first changed path that is a hard link of this node on its side, in the
	// order of changes; "" if this path is the first.
	LinkOf string
	// Ino and Dev identify the inode on its side while the tree is mounted.
	Ino, Dev uint64
	// NLink is the link count, including names outside the tree. It is not compared.
	NLink uint32
}

// IsDir reports whether n, which may be nil, is a directory.
func (n *Node) IsDir() bool { return n != nil && n.Mode.IsDir() }

// Shared reports whether the file of n, which may be nil, may have more than one name (hard link).
func (n *Node) Shared() bool { return n != nil && n.NLink > 1 && !n.Mode.IsDir() }

// A Change is the difference between an old and a new tree at one path: the path was added, modified or
// deleted.
type Change struct {
	// Path is relative to the root of both trees, with slashes, "." for the root. It may
	// contain any byte except NUL.
	Path string
	Kind Kind
	// What is the set of differing aspects, zero unless Kind is Modified. A path whose
	// type changed is one modified path with Type in the set; paths below an old or new
	// directory are deleted or added.
	What Aspect
	// Old is nil for an added path, New for a deleted one.
	Old, New *Node
	// Moved is set if the path was added by the rename of a directory of which the unchanged
	// entries are not listed; see [Options.Fold].
	Moved *Moved
}

// TimeOnly reports whether only the time of a directory differs, which mostly means that a name in it was
// added or removed. Such a change is neither shown nor counted.
func (c Change) TimeOnly() bool { return c.What == Time && c.New.Mode.IsDir() }

// ComparePaths orders two relative paths for a sort: negative if a comes first, 0 if they are equal.
// It compares path element by path element and each of them byte by byte, so that a directory comes
// right before the paths below it; "." comes before all others.
func ComparePaths(a, b string) int {
	switch {
	case a == b:
		return 0
	case a == ".":
		return -1
	case b == ".":
		return 1
	}
	i, n := 0, min(len(a), len(b))
	for i+pathChunk <= n && a[i:i+pathChunk] == b[i:i+pathChunk] { // long equal parts, at the speed of memory
		i += pathChunk
	}
	for i < n && a[i] == b[i] {
		i++
	}
	switch {
	case i == n:
		return cmp.Compare(len(a), len(b))
	case a[i] == '/': // the name that ends first comes first
		return -1
	case b[i] == '/':
		return 1
	}
	return cmp.Compare(a[i], b[i])
}

// pathChunk is the number of bytes that [ComparePaths] compares at once, to be faster than byte by byte.
const pathChunk = 64

// Split returns the directory and the last name of a relative path; "." and the path if it has one name.
func Split(path string) (dir, name string) {
	cut := strings.LastIndexByte(path, '/')
	if cut < 0 {
		return ".", path
	}
	return path[:cut], path[cut+1:]
}

// Inside reports whether path, of a file in a tree, is below dir. Both are relative to the tree's root, which
// is ".".
func Inside(path, dir string) bool {
	return dir == "." && path != "." || strings.HasPrefix(path, dir) && len(path) > len(dir) && path[len(dir)] == '/'
}
