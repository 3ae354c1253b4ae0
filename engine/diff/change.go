// Package diff finds the exact difference of two trees and writes it for
// people, for git and for programs.
//
// There is one model ([Change]) and one order, whatever told us where to look:
// the upper layer of an overlay, a filesystem's own tree of changes, or a walk
// of both sides. The sources only name places ([snapshot.Touch]); the
// comparison is always made here, on the two trees themselves.
//
// What is compared: type, permission bits, owner, size and content,
// modification time, symbolic link target, device number, extended attributes
// (access control lists and file capabilities among them) and which names are
// hard links of one another. What is not: access and change times, inode and
// device numbers, link counts of directories, the size of a directory, and the
// layout of holes in a sparse file. The modification time of a directory
// counts only when the same names are in it: otherwise it only repeats what
// the changes of those names say. Where the type changed, nothing else is
// compared.
//
// # Hard links
//
// Which names are links of one another is told among the changed paths alone,
// because a comparison that looks only at touched places cannot see the
// others. For this a path whose link count differs counts as changed, too (and
// with Options.SameInodes one with several links whose inode number differs).
// Each of them belongs to the group of those that share its inode on that side;
// where the old and the new group of a path are not the same names, [Links]
// differs, and [Node.LinkOf] is the first of the group. So the link that
// joins a new name to an old one shows at both, and a link count that differs
// only for names outside the tree, or because an overlay copied one of
// several links up, shows nowhere. What stays invisible are links that
// were exchanged without any count, time or content differing.
package diff

import (
	"io/fs"
	"strings"
	"time"
)

// Kind is what happened to a path.
type Kind int

// The kinds of change.
const (
	Added Kind = iota + 1
	Modified
	Deleted
)

var kindNames = [...]string{Added: "added", Modified: "modified", Deleted: "deleted"}

func (k Kind) String() string { return kindNames[k] }

// Letter is the one-letter form of a kind: A, M or D.
func (k Kind) Letter() string { return strings.ToUpper(kindNames[k][:1]) }

// Aspect is a set of what differs in a modified path.
type Aspect uint

// The aspects of a node.
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

// Names lists the aspects in the set, in a fixed order.
func (a Aspect) Names() []string {
	names := []string{}
	for i, n := range aspectNames {
		if a&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return names
}

// A Node is one side of a change: what a path is in one of the trees.
type Node struct {
	// Mode holds the type and the permission bits, with the set-id and sticky
	// bits, as fs.FileMode has them.
	Mode     fs.FileMode
	UID, GID uint32
	// Size in bytes of a regular file; the length of a symbolic link's target.
	Size  int64
	MTime time.Time
	// CTime is not compared; it tells drift.
	CTime time.Time
	// Target of a symbolic link.
	Target string
	// Rdev of a device node, as stat(2) gives it.
	Rdev uint64
	// Xattrs by full name, user.* and all others that this process may read.
	Xattrs map[string]string
	// LinkOf is the first changed path, in the order of changes, that is a
	// hard link of this one on this side, when that is another path; else "".
	LinkOf string
	// Ino and Dev identify the inode on its side while the tree is mounted.
	Ino, Dev uint64
	// NLink is the link count, names outside the tree included. It is not
	// compared.
	NLink uint32
}

// A Change is the difference of two trees at one path.
type Change struct {
	// Path is relative to the root of both trees, elements separated by
	// slashes, "." for the root; any bytes but NUL.
	Path string
	Kind Kind
	// What differs; zero unless Kind is Modified. A path whose type changed
	// is one modified path with Type in the set, and what lay beneath an
	// old directory, or lies beneath a new one, is deleted or added.
	What Aspect
	// Old is nil for an added path, New for a deleted one.
	Old, New *Node
}

// Echo reports whether it is a directory of which nothing but the time differs: mostly it
// repeats that some name in it came or went. Nobody is told of one, nor is it counted.
func (c Change) Echo() bool { return c.What == Time && c.New.Mode.IsDir() }

// Less is the order of changes: byte by byte per path element, so that a
// directory comes right before what lies beneath it.
func Less(a, b string) bool {
	if a == "." || b == "." {
		return a == "." && b != "."
	}
	for {
		x, restA, moreA := strings.Cut(a, "/")
		y, restB, moreB := strings.Cut(b, "/")
		if x != y {
			return x < y
		}
		if !moreA || !moreB {
			return !moreA && moreB
		}
		a, b = restA, restB
	}
}

// Inside reports whether path is below dir. Both are relative to one root, "." being it.
func Inside(path, dir string) bool {
	return dir == "." && path != "." || strings.HasPrefix(path, dir) && len(path) > len(dir) && path[len(dir)] == '/'
}
