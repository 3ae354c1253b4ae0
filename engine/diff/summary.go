package diff

import "github.com/snapfs/snapfs/engine/snapshot"

// A Summary has the number of changes of each kind, and by how much files grew and shrank. It counts, but not
// in bytes, the unlisted entries of renamed directories as added and deleted; see [Options.Fold].
type Summary struct {
	Added, Modified, Deleted int
	// Grown and Shrunk are the bytes by which regular files became longer and shorter. Each
	// file counts in only one of them.
	Grown, Shrunk snapshot.Bytes
}

// Summarise counts the changes between two trees by kind, and the bytes by which files grew and shrank.
func Summarise(changes []Change) Summary {
	var s Summary
	for _, c := range changes {
		switch c.Kind {
		case Added:
			s.Added += 1 + c.Unlisted()
			s.Deleted += c.Unlisted()
		case Modified:
			s.Modified++
		case Deleted:
			s.Deleted++
		}
		if d := c.SizeDelta(); d > 0 {
			s.Grown += d
		} else {
			s.Shrunk -= d
		}
	}
	return s
}

// Count returns the number of changes that are shown to a user: all but those that only set a directory's
// time.
func Count(changes []Change) int {
	n := 0
	for i := range changes {
		if !changes[i].TimeOnly() {
			n++
		}
	}
	return n
}

// Add adds the counts of changes and bytes in t to those in s, for the sum of several comparisons.
func (s *Summary) Add(t Summary) {
	s.Added, s.Modified, s.Deleted = s.Added+t.Added, s.Modified+t.Modified, s.Deleted+t.Deleted
	s.Grown, s.Shrunk = s.Grown+t.Grown, s.Shrunk+t.Shrunk
}

// SizeDelta returns by how many bytes a changed regular file grew; negative if it shrank. For other nodes it
// is 0, and of several changed hard links only the first counts.
func (c Change) SizeDelta() snapshot.Bytes {
	size := func(n *Node) int64 {
		if n == nil || !n.Mode.IsRegular() || n.LinkOf != "" {
			return 0
		}
		return n.Size
	}
	return snapshot.Bytes(size(c.New) - size(c.Old))
}
