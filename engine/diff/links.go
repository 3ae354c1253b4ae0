package diff

import (
	"slices"

	"github.com/snapfs/snapfs/internal/vfs"
)

// linksMayDiffer reports whether the hard links of a node may differ between the trees, by its link counts
// and inodes. Then the groups of names are compared at the end.
func (w *worker) linksMayDiffer(st *[2]vfs.Stat) bool {
	a, b := &st[older], &st[newer]
	if a.Nlink == 1 && b.Nlink == 1 {
		return false
	}
	return a.Nlink != b.Nlink || w.opt.SameInodes && a.Ino != b.Ino
}

// A group is the changed paths of a tree that are hard links of one inode, in the order of changes.
type group []string

type inode struct{ dev, ino uint64 }

// nameLinks completes the differences of two trees by their hard links. It sets LinkOf of changed paths that
// are hard links, marks paths whose hard links differ, and drops paths in which nothing differs. See the
// package comment.
func nameLinks(changes []Change) []Change {
	var groups [2]map[inode]*group
	for _, c := range changes {
		for side, n := range [2]*Node{c.Old, c.New} {
			if !n.Shared() {
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
	linked := groups[older] != nil || groups[newer] != nil
	equal := map[[2]*group]bool{}
	for i := 0; linked && i < len(changes); i++ {
		c := &changes[i]
		var of [2]*group
		for side, n := range [2]*Node{c.Old, c.New} {
			if n.Shared() {
				of[side] = groups[side][inode{n.Dev, n.Ino}]
				if first := (*of[side])[0]; first != c.Path {
					n.LinkOf = first
				}
			}
		}
		if c.Kind == Modified && c.What&Type == 0 && !sameGroup(of, equal) {
			c.What |= Links
		}
	}
	return slices.DeleteFunc(changes, func(c Change) bool { return c.Kind == Modified && c.What == 0 })
}

// sameGroup reports whether a path has the same changed paths as hard links in the old and in the new tree.
// known caches the result, so that large groups are compared once.
func sameGroup(of [2]*group, known map[[2]*group]bool) bool {
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
