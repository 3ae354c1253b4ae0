package layer

// A Side is a part of a tree that is only read: two filesystems show it together, Common above Apart in an overlay,
// or one does.
type Side uint8

const (
	// Whole is all of it. A node is on this side until that is decided.
	Whole Side = iota
	// Common is what is small, has no extended attributes, and one name, unless it is a directory.
	Common
	// Apart is the rest, and all that lies in a directory of it.
	Apart
)

// mostCommon is how many bytes a file of Common may have: it is read in a few requests,
// and never again.
const mostCommon = 1 << 20

// Side decides on which side a node is, by itself and not by the directory that it lies in. That holds until the
// kernel has forgotten the node, whatever becomes of it below. Cost, the first time: listxattr(2).
func (f *FS) Side(id uint64) Side {
	f.mu.RLock()
	n := f.nodes[id]
	if n == nil {
		f.mu.RUnlock()
		return Apart // who asks for it there hears why it cannot be looked at
	}
	side := n.side
	apart := !n.isDir() && n.nlink > 1 || n.regular() && n.size > mostCommon
	f.mu.RUnlock()
	if side != Whole {
		return side
	}
	if !apart {
		names, err := f.xattrNames(n)
		apart = len(names) > 0 || err != nil
	}
	if side = Common; apart {
		side = Apart
	}
	return f.decide(n, side)
}

// ToldApart says that the kernel was told of a node on that side, as one that is not on the other: it stays so.
func (f *FS) ToldApart(id uint64) {
	f.mu.RLock()
	n := f.nodes[id]
	f.mu.RUnlock()
	if n != nil {
		f.decide(n, Apart)
	}
}

// decide answers with the side of a node, which is this one unless it was decided before.
func (f *FS) decide(n *node, side Side) Side {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n.side == Whole {
		n.side = side
	}
	return n.side
}
