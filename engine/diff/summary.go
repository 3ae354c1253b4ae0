package diff

import "github.com/snapfs/snapfs/engine/snapshot"

// A Summary counts changes.
type Summary struct {
	Added, Modified, Deleted int
	// Grown and Shrunk are the bytes by which regular files became longer and shorter. Each
	// file counts in only one of them.
	Grown, Shrunk snapshot.Bytes
}

// Summarise counts changes.
func Summarise(changes []Change) Summary {
	var s Summary
	for _, c := range changes {
		switch c.Kind {
		case Added:
			s.Added++
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

// Count returns the number of changes that are shown to a user.
func Count(changes []Change) int {
	n := 0
	for i := range changes {
		if !changes[i].TimeOnly() {
			n++
		}
	}
	return n
}

// Add adds the counts of t.
func (s *Summary) Add(t Summary) {
	s.Added, s.Modified, s.Deleted = s.Added+t.Added, s.Modified+t.Modified, s.Deleted+t.Deleted
	s.Grown, s.Shrunk = s.Grown+t.Grown, s.Shrunk+t.Shrunk
}

// SizeDelta returns by how many bytes the regular file grew. Other nodes have 0, and of several
// changed hard links only the first counts.
func (c Change) SizeDelta() snapshot.Bytes {
	size := func(n *Node) int64 {
		if n == nil || !n.Mode.IsRegular() || n.LinkOf != "" {
			return 0
		}
		return n.Size
	}
	return snapshot.Bytes(size(c.New) - size(c.Old))
}
