package layer

// A side is one of two filesystems that show a tree together; see [FS.Apart].
type side uint8

const (
	undecided side = iota
	common
	apart
)

// mostCommon is how many bytes a file may have that is not apart: it is read in a few
// requests, and never again.
const mostCommon = 1 << 20

// Apart reports on which side a node is, of a tree that is only read and that two filesystems show together, one
// beneath the other in an overlay: apart is what has extended attributes, a regular file of more than 1 MiB, all that
// lies in a directory that is apart, and so whatever has several names, of which one may lie there. Dir is the
// directory that it was found in; of the root it is the root. What was decided holds as long as the kernel knows the
// node, whatever becomes of it below. Cost, the first time: a system call.
func (f *FS) Apart(dir, id uint64) bool {
	f.mu.RLock()
	n, in := f.nodes[id], f.nodes[dir]
	if n == nil || in == nil {
		f.mu.RUnlock()
		return true // who asks for it hears why it cannot be looked at
	}
	known := n.side
	is := in.side == apart || !n.isDir() && n.nlink > 1 || n.regular() && n.size > mostCommon
	f.mu.RUnlock()
	if known != undecided {
		return known == apart
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
