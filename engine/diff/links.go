package diff

import (
	"slices"

	"github.com/snapfs/snapfs/internal/vfs"
)

// relinked reports whether a node's links may differ, so that it has to be
// looked at beside the others that may.
func (w *worker) relinked(st *[2]vfs.Stat) bool {
	a, b := &st[older], &st[newer]
	if a.Nlink == 1 && b.Nlink == 1 {
		return false
	}
	return a.Nlink != b.Nlink || w.opt.SameInodes && a.Ino != b.Ino
}

// A group is the changed paths that are names of one inode, in order.
type group []string

type inode struct{ dev, ino uint64 }

// linked names the hard links among changes, marks the nodes whose links
// differ, and drops those in which nothing does. See the package comment for
// what counts.
func linked(changes []Change) []Change {
	var groups [2]map[inode]*group
	for _, c := range changes {
		for side, n := range c.nodes() {
			if !n.shared() {
				continue
			}
			if groups[side] == nil {
				groups[side] = map[inode]*group{}
			}
			id := inode{n.Dev, n.Ino}
			if groups[side][id] == nil {
				groups[side][id] = &group{}
			}
			*groups[side][id] = append(*groups[side][id], c.Path)
		}
	}
	equal := map[[2]*group]bool{}
	for i := range changes {
		c := &changes[i]
		var of [2]*group
		for side, n := range c.nodes() {
			if n.shared() {
				of[side] = groups[side][inode{n.Dev, n.Ino}]
				if first := (*of[side])[0]; first != c.Path {
					n.LinkOf = first
				}
			}
		}
		if c.Kind == Modified && c.What&Type == 0 && !alike(of, equal) {
			c.What |= Links
		}
	}
	return slices.DeleteFunc(changes, func(c Change) bool { return c.Kind == Modified && c.What == 0 })
}

// alike reports whether a path that is in both groups has the same companions
// in each. What was found is kept in known, so that large groups are compared
// once.
func alike(of [2]*group, known map[[2]*group]bool) bool {
	switch a, b := of[older], of[newer]; {
	case a == nil && b == nil:
		return true
	case a == nil:
		return len(*b) == 1
	case b == nil:
		return len(*a) == 1
	}
	same, ok := known[of]
	if !ok {
		same = slices.Equal(*of[older], *of[newer])
		known[of] = same
	}
	return same
}

func (c *Change) nodes() [2]*Node { return [2]*Node{c.Old, c.New} }

// shared reports whether a node may have other names.
func (n *Node) shared() bool { return n != nil && n.NLink > 1 && !n.Mode.IsDir() }
