package layer

// A side is the one of two filesystems that shows a file; see [FS.Apart].
type side uint8

const (
	undecided side = iota
	common
	apart
)

// mostCommon is how many bytes a file may have that is not apart: it is read in a few
// requests, and never again.
const mostCommon = 1 << 20

// Apart decides on which side a node is, of a tree that is only read and that two filesystems show together, one
// beneath the other in an overlay: apart is what has extended attributes or several names, and a regular file of more than
// 1 MiB. What was decided holds as long as the kernel knows the node, whatever becomes of it below. Who shows what is
// not apart asks before he tells of it, and does not tell of what lies in a directory that is apart. Cost, the first time: a system call.
func (f *FS) Apart(id uint64) bool {
	f.mu.RLock()
	n := f.nodes[id]
	if n == nil {
		f.mu.RUnlock()
		return true // who asks for it hears why it cannot be looked at
	}
	decided := n.side
	is := !n.isDir() && n.nlink > 1 || n.regular() && n.size > mostCommon
	f.mu.RUnlock()
	if decided != undecided {
		return decided == apart
	}
	if !is {
		names, err := f.xattrNames(n)
		is = len(names) > 0 || err != nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n.side == undecided {
		if n.side = common; is {
			n.side = apart
		}
	}
	return n.side == apart
}

// Common reports whether it was decided that a node is not apart.
func (f *FS) Common(id uint64) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n := f.nodes[id]
	return n != nil && n.side == common
}
