package layer

// A View is one of the FUSE mounts that show a part of a read-only lower. A lower is shown either whole by
// one mount, or by two that overlayfs stacks, Cached above Uncached: the kernel can leave out requests to
// open files or for their extended attributes only for a whole mount, and does for Cached.
type View uint8

const (
	// Whole is the FUSE mount that shows the whole lower. For an inode it means: no view is assigned yet.
	Whole View = iota
	// Cached is the FUSE mount of directories, and of small files that have one name and no extended
	// attributes.
	Cached
	// Uncached is the FUSE mount of all files that Cached lacks, and of entries of directories only it has.
	Uncached
)

// maxCached is the size in bytes up to which a file is in the view Cached: the kernel reads such a file with
// a few requests and then has it cached.
const maxCached = 1 << 20

// View returns through which FUSE mount the inode id is shown, by its size, links and attributes alone, not
// its directory. The result stays the same until the kernel forgets the inode, whatever happens in the lower.
// Cost of the first call: listxattr(2).
func (f *FS) View(id uint64) View {
	f.mu.RLock()
	n := f.inodes[id]
	if n == nil {
		f.mu.RUnlock()
		return Uncached // a lookup in that view returns the error
	}
	view := n.view
	uncached := !n.isDir() && n.nlink > 1 || n.regular() && n.size > maxCached
	f.mu.RUnlock()
	if view != Whole {
		return view
	}
	if !uncached {
		names, err := f.xattrNames(n)
		uncached = len(names) > 0 || err != nil
	}
	if view = Cached; uncached {
		view = Uncached
	}
	return f.setView(n, view)
}

// PinUncached assigns the inode id to the view Uncached, the FUSE mount in which the kernel has looked it up.
// The inode stays there until the kernel forgets it, since overlayfs remembers where it found a name.
func (f *FS) PinUncached(id uint64) {
	f.mu.RLock()
	n := f.inodes[id]
	f.mu.RUnlock()
	if n != nil {
		f.setView(n, Uncached)
	}
}

// setView sets the view, the FUSE mount that shows the inode n, unless it is decided already, and returns it.
func (f *FS) setView(n *inode, view View) View {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n.view == Whole {
		n.view = view
	}
	return n.view
}
