package merge

import (
	"slices"

	"github.com/snapfs/snapfs/engine/diff"
)

// A Kind says in which respect the sandbox and the real tree disagree in a conflict. The values do not change
// between versions.
type Kind string

// The kinds of conflict between the sandbox's and the real tree's changes.
const (
	// Content means that the sandbox and the real tree changed the same lines of a text file.
	Content Kind = "content"
	// Binary means that the sandbox and the real tree both changed a file that is not text, or too long to
	// merge.
	Binary Kind = "binary"
	// NoBase means that the sandbox and the real tree both changed a file of which the original is no longer
	// available.
	NoBase Kind = "no-base"
	// Lost means that the sandbox renamed a directory whose entries only the real tree had, and the real tree
	// has removed or renamed that directory.
	Lost Kind = "lost"
	// AddAdd means that the sandbox and the real tree both added a file at one path, with different content.
	AddAdd Kind = "add-add"
	// ChangeDelete means that the sandbox changed a file that the real tree deleted, or an
	// entry of a directory that the real tree deleted. DeleteChange means the reverse.
	ChangeDelete Kind = "change-delete"
	DeleteChange Kind = "delete-change"
	// Type means that the sandbox and the real tree both changed a file's type (file, directory, link), or
	// one did and the other changed the file.
	Type Kind = "type"
	// Directory means that, of sandbox and real tree, one has a file where the other has a non-empty
	// directory.
	Directory Kind = "directory"
	// Mode, Owner, Xattrs, Target and Device mean that the sandbox and the real tree both changed this
	// attribute of a file. An access control list and the permission bits count as one, reported as Mode.
	Mode   Kind = "mode"
	Owner  Kind = "owner"
	Xattrs Kind = "xattrs"
	Target Kind = "target"
	Device Kind = "device"
	// Links means that the sandbox and the real tree disagree on which names are hard links of a file. It
	// also means that one of them relinked the file and the other changed it, or that the sandbox changed one
	// link alone.
	Links Kind = "links"
	// RenameRename means that sandbox and real tree moved one file to different paths, or two files to one
	// path. RenameDelete: one of them moved the file, the other deleted it. RenameAdd: one moved a file to a
	// path where the other added one.
	RenameRename Kind = "rename-rename"
	RenameDelete Kind = "rename-delete"
	RenameAdd    Kind = "rename-add"
)

// A Conflict is a path at which the merge cannot decide between the change of the sandbox (mine) and that of
// the real tree.
type Conflict struct {
	// Path is the path in the merged tree. The conflict covers everything below Path,
	// too, unless Alone is set.
	Path string
	Kind Kind
	// Base, Mine and Real are the node in each tree; nil where the tree has none.
	Base, Mine, Real *diff.Node
	// BasePath, MinePath and RealPath are the path in each tree where that differs from Path,
	// else "".
	BasePath, MinePath, RealPath string
	// Also lists further paths that the answer to this conflict decides. No path contains
	// another.
	Also []string
	// Alone is set if the conflict is about a directory itself and not about its entries.
	Alone bool
	// Several is set if the conflict, and so its answer, covers more than one file. Neither
	// conflict markers nor a merge tool can show all of them.
	Several bool
	// Why is the reason, to be printed after "PATH: ".
	Why string
	// Marked is set if both sides are texts, so that [WriteMarkers] can show them in one file.
	Marked bool
}

// Paths returns every path that the conflict covers. Unless Alone is set, each path stands for
// everything below it, too.
func (c *Conflict) Paths() []string {
	var all []string
	for _, path := range append([]string{c.Path, c.MinePath, c.RealPath}, c.Also...) {
		if path != "" {
			all = append(all, path)
		}
	}
	return all
}

// include adds to the conflict the paths that further files of the merge have in the sandbox and in the real
// tree.
func (c *Conflict) include(things []*entry) {
	var also []string
	for _, t := range things {
		also = append(also, t.on[mine].path, t.on[real].path)
	}
	c.addPaths(also)
	c.Several = c.Several || len(things) > 1
	c.Marked = c.Marked && !c.Several
}

// absorb adds all paths of the conflicts in others to the conflict, which then stands for them, too.
func (c *Conflict) absorb(others []*Conflict) {
	var also []string
	for _, other := range others {
		also = append(also, other.Paths()...)
	}
	c.addPaths(also)
	c.Several, c.Marked = true, false
}

// addPaths adds those of paths that the conflict does not cover yet to its field Also, so that one answer
// decides about all.
func (c *Conflict) addPaths(paths []string) {
	covered := pathSet{}
	for _, path := range c.Paths() {
		covered.add(path)
	}
	slices.SortFunc(paths, diff.ComparePaths)
	for _, path := range paths {
		if covered.add(path) {
			c.Also = append(c.Also, path)
		}
	}
	slices.SortFunc(c.Also, diff.ComparePaths)
}

// joinOverlapping joins conflicts of which one lies below a path of another, so that the answer to one cannot
// undo the answer to another.
func joinOverlapping(all []Conflict) []Conflict {
	into, at := make([]int, len(all)), map[string]int{} // into: the conflict that absorbed conflict i; at: conflict by path
	last := func(i int) int {
		for into[i] != i {
			i = into[i]
		}
		return i
	}
	for i := range all {
		into[i] = i
		for _, path := range all[i].subtrees() {
			if _, ok := at[path]; !ok {
				at[path] = i
			}
		}
	}
	for i := range all {
		for _, path := range all[i].subtrees() {
			for ; path != "."; path = parent(path) {
				if outer, ok := at[path]; ok && last(outer) != last(i) {
					into[last(i)] = last(outer)
				}
			}
		}
	}
	taken := map[int][]*Conflict{}
	for i := range all {
		if to := last(i); to != i {
			taken[to] = append(taken[to], &all[i])
		}
	}
	var left []Conflict
	for i := range all {
		if into[i] != i {
			continue
		}
		if len(taken[i]) > 0 {
			all[i].absorb(taken[i])
		}
		left = append(left, all[i])
	}
	return left
}

// subtrees returns the paths of the conflict if each covers everything below it, and none if Alone is set,
// that is, if the conflict is about directories themselves.
func (c *Conflict) subtrees() []string {
	if c.Alone {
		return nil
	}
	return c.Paths()
}

// A pathSet is a set of paths of directories and files in a merge; each stands for everything below it, too.
type pathSet map[string]bool

// add adds path, with everything below it, to the set of paths. It reports whether the set did not cover path
// yet.
func (r pathSet) add(path string) bool {
	for at := path; at != "."; at = parent(at) {
		if at == "" || r[at] {
			return false
		}
	}
	if path != "." {
		r[path] = true
	}
	return path != "."
}

// covers reports whether path is in the set of paths, or is below one of them.
func (r pathSet) covers(path string) bool {
	for at := path; at != "." && at != ""; at = parent(at) {
		if r[at] {
			return true
		}
	}
	return false
}
