package diff

import "io/fs"

// A Rename is a deleted and an added path that are one and the same node.
type Rename struct{ From, To string }

// Renames pairs deleted with added paths, in the order of the new paths, for
// showing: changes stay what they are. It goes by inode number, type, size and
// modification time, and so holds only for trees compared with
// Options.SameInodes. Directories, and nodes with several links, are not
// paired. Cost: in proportion to the changes; nothing is read.
func Renames(changes []Change) []Rename {
	type identity struct {
		ino   uint64
		kind  fs.FileMode
		size  int64
		mtime int64
	}
	of := func(n *Node) (identity, bool) {
		if n == nil || n.Mode.IsDir() || n.NLink != 1 {
			return identity{}, false
		}
		return identity{n.Ino, n.Mode.Type(), n.Size, n.MTime.UnixNano()}, true
	}
	was := map[identity]string{}
	for _, c := range changes {
		if id, ok := of(c.Old); ok && c.Kind == Deleted {
			was[id] = c.Path
		}
	}
	var pairs []Rename
	for _, c := range changes {
		id, ok := of(c.New)
		if from := was[id]; ok && c.Kind == Added && from != "" {
			pairs = append(pairs, Rename{from, c.Path})
		}
	}
	return pairs
}
