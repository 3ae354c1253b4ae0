package layer

// New describes an inode to create.
type New struct {
	Name string // in its directory; empty for an inode without a name, see [FS.Link]
	// Mode includes the file type. Umask is ignored if the directory has a default ACL.
	Mode, Umask, UID, GID uint32
	Rdev                  uint32
	Target                string // of a symbolic link
}

// Make creates an inode in a directory.
func (f *FS) Make(id uint64, what New) (Entry, error) {
	dir, err := f.inodeByID(id)
	if err != nil {
		return Entry{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.create(dir, what.Name, what.Mode, what.UID, what.GID, what.Umask)
	if err != nil {
		return Entry{}, err
	}
	n.rdev, n.target = what.Rdev, what.Target
	return f.entry(n), nil
}

// Link is link(2).
func (f *FS) Link(id, dirID uint64, name string) (Entry, error) {
	n, err := f.inodeByID(id)
	if err != nil {
		return Entry{}, err
	}
	dir, err := f.inodeByID(dirID)
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
	dir, err := f.inodeByID(id)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unlink(dir, name, rmdir)
}

// Rename is renameat2(2), without RENAME_WHITEOUT.
func (f *FS) Rename(fromID uint64, name string, toID uint64, toName string, flags uint32) error {
	from, err := f.inodeByID(fromID)
	if err != nil {
		return err
	}
	to, err := f.inodeByID(toID)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rename(from, name, to, toName, flags)
}

// Xattr returns the value of an extended attribute, or unix.ENODATA.
func (f *FS) Xattr(id uint64, name string) (string, error) {
	n, err := f.inodeByID(id)
	if err != nil {
		return "", err
	}
	return f.xattr(n, name)
}

// Xattrs returns the names of all extended attributes.
func (f *FS) Xattrs(id uint64) ([]string, error) {
	n, err := f.inodeByID(id)
	if err != nil {
		return nil, err
	}
	return f.xattrNames(n)
}

// SetXattr sets an extended attribute; flags are those of setxattr(2). With dropSetGID, setting an ACL also
// clears the set-gid bit.
func (f *FS) SetXattr(id uint64, name, value string, flags uint32, dropSetGID bool) error {
	n, err := f.inodeByID(id)
	if err != nil {
		return err
	}
	return f.setXattr(n, name, value, flags, dropSetGID)
}

// RemoveXattr removes an extended attribute, or returns unix.ENODATA.
func (f *FS) RemoveXattr(id uint64, name string) error {
	n, err := f.inodeByID(id)
	if err != nil {
		return err
	}
	return f.removeXattr(n, name)
}
