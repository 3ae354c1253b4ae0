package layer

// A View is a part of a read-only lower. A lower is shown either whole by one filesystem, or by two that
// overlayfs stacks, Cached above Uncached. See package mount for the reason.
type View uint8

const (
	// Whole is the whole lower. As the view of an inode it means not yet decided.
	Whole View = iota
	// Cached has directories, and small files without extended attributes or further links.
	Cached
	// Uncached has everything else, and everything in directories that it alone has.
	Uncached
)

// maxCached bounds the size of a file in Cached: the kernel reads such a file with a few requests and never
// again.
const maxCached = 1 << 20

// View returns the view of an inode, which depends on the inode alone, not on its directory. The answer stays
// the same until the kernel forgets the inode, whatever happens in the lower. Cost of the first call:
// listxattr(2).
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

// PinUncached records that the kernel looked up the inode in Uncached, so that the inode stays in that view.
func (f *FS) PinUncached(id uint64) {
	f.mu.RLock()
	n := f.inodes[id]
	f.mu.RUnlock()
	if n != nil {
		f.setView(n, Uncached)
	}
}

// setView sets the view of n unless it is already decided, and returns the view.
func (f *FS) setView(n *inode, view View) View {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n.view == Whole {
		n.view = view
	}
	return n.view
}
