package diff

import "github.com/snapfs/snapfs/engine/snapshot"

// A Summary counts changes.
type Summary struct {
	Added, Modified, Deleted int
	// Grown and Shrunk are the bytes of regular files that the new tree has
	// more, and that it has less; each file counts on one side.
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

// Count is how many changes a person is told of.
func Count(changes []Change) int {
	n := 0
	for i := range changes {
		if !changes[i].Echo() {
			n++
		}
	}
	return n
}

// Add counts those of t, too.
func (s *Summary) Add(t Summary) {
	s.Added, s.Modified, s.Deleted = s.Added+t.Added, s.Modified+t.Modified, s.Deleted+t.Deleted
	s.Grown, s.Shrunk = s.Grown+t.Grown, s.Shrunk+t.Shrunk
}

// SizeDelta is how many bytes longer the path is as a regular file; what is no
// regular file has none, and of several changed hard links only the first has.
func (c Change) SizeDelta() snapshot.Bytes {
	size := func(n *Node) int64 {
		if n == nil || !n.Mode.IsRegular() || n.LinkOf != "" {
			return 0
		}
		return n.Size
	}
	return snapshot.Bytes(size(c.New) - size(c.Old))
}
