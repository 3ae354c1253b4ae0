package layer

// New is a node to be made.
type New struct {
	Name string // of the node in its directory; empty: none yet, see [FS.Link]
	// Mode has the type too. Umask counts where the directory has no list to inherit.
	Mode, Umask, UID, GID uint32
	Rdev                  uint32
	Target                string // of a symbolic link
}

// Make makes a node in a directory.
func (f *FS) Make(id uint64, what New) (Entry, error) {
	dir, err := f.node(id)
	if err != nil {
		return Entry{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.make(dir, what.Name, what.Mode, what.UID, what.GID, what.Umask)
	if err != nil {
		return Entry{}, err
	}
	n.rdev, n.target = what.Rdev, what.Target
	return f.entry(n), nil
}

// Link is link(2).
func (f *FS) Link(id, dirID uint64, name string) (Entry, error) {
	n, err := f.node(id)
	if err != nil {
		return Entry{}, err
	}
	dir, err := f.node(dirID)
	if err != nil {
		return Entry{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.link(n, dir, name); err != nil {
		return Entry{}, err
	}
	return f.entry(n), nil
}

// Remove is unlink(2), or rmdir(2).
func (f *FS) Remove(id uint64, name string, rmdir bool) error {
	dir, err := f.node(id)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unlink(dir, name, rmdir)
}

// Rename is renameat2(2), without RENAME_WHITEOUT.
func (f *FS) Rename(fromID uint64, name string, toID uint64, toName string, flags uint32) error {
	from, err := f.node(fromID)
	if err != nil {
		return err
	}
	to, err := f.node(toID)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rename(from, name, to, toName, flags)
}

// Xattr is an extended attribute. unix.ENODATA: there is none.
func (f *FS) Xattr(id uint64, name string) (string, error) {
	n, err := f.node(id)
	if err != nil {
		return "", err
	}
	return f.xattr(n, name)
}

// Xattrs are the names of all extended attributes.
func (f *FS) Xattrs(id uint64) ([]string, error) {
	n, err := f.node(id)
	if err != nil {
		return nil, err
	}
	return f.xattrNames(n)
}

// SetXattr writes an extended attribute; flags are those of setxattr(2). With
// dropSetGID, a list that changes the mode takes that bit too.
func (f *FS) SetXattr(id uint64, name, value string, flags uint32, dropSetGID bool) error {
	n, err := f.node(id)
	if err != nil {
		return err
	}
	return f.setXattr(n, name, value, flags, dropSetGID)
}

// RemoveXattr takes an extended attribute away. unix.ENODATA: there is none.
func (f *FS) RemoveXattr(id uint64, name string) error {
	n, err := f.node(id)
	if err != nil {
		return err
	}
	return f.removeXattr(n, name)
}
