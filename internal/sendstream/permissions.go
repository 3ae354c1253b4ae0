package sendstream

import (
	"errors"
	"os"
	"strings"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// For an ordinary user, the modes that a stream sets restrict the later commands of the stream. Its
// writer was root, whom modes do not restrict.

// A grant is a temporary change of an inode's mode, by which the owner may do one stream command: the open
// inode, and its former mode, which is set again afterwards.
type grant struct {
	fd   int
	mode uint32
}

// withPermissions executes the stream command c for an ordinary user if the modes of the files in the tree
// forbid it. It adds permissions for the owner, calls do, and restores the modes.
func (a *applier) withPermissions(c *command, do func(*applier, *command) error) (err error) {
	var grants []grant
	defer func() {
		for i := len(grants) - 1; i >= 0; i-- { // innermost first
			err = errors.Join(err, unix.Chmod(vfs.PathTo(grants[i].fd), grants[i].mode))
			unix.Close(grants[i].fd)
		}
	}()
	for _, at := range []attr{aPath, aPathTo, aPathLink, aClonePath} {
		if !c.has[at] || at == aPathLink && c.op == Symlink {
			continue
		}
		path := string(c.parts[at])
		if path != "" {
			if path, err = checked(path); err != nil {
				return err
			}
		}
		if grants, err = a.grant(grants, path, needsInode(c, at)); err != nil {
			return err
		}
	}
	return do(a, c)
}

// needsInode reports whether the send stream's command c needs permissions on the inode at its path
// (attribute at) itself, and not only on the parent directory.
func needsInode(c *command, at attr) bool {
	switch c.op {
	case Write, Truncate, Clone:
		return true
	case Rename: // renaming a directory changes its ".."
		return at == aPath
	case SetXattr, RemoveXattr: // setting an ACL needs only ownership, and changes the mode
		return strings.HasPrefix(string(c.parts[aXattrName]), "user.")
	}
	return false
}

// grant gives the owner permissions on each directory above path and, if the flag it is set, on the inode at
// path itself. It appends each change that it made to grants and returns that, also after an error, so that
// the caller can undo the changes.
func (a *applier) grant(grants []grant, path string, it bool) ([]grant, error) {
	ends := []int{0}
	for i := range path {
		if path[i] == '/' {
			ends = append(ends, i)
		}
	}
	if it && path != "" {
		ends = append(ends, len(path))
	}
	for _, end := range ends {
		var fd int
		var err error
		if end == 0 {
			fd, err = unix.FcntlInt(uintptr(a.root), unix.F_DUPFD_CLOEXEC, 0)
		} else {
			fd, err = vfs.OpenBeneathFD(a.root, path[:end], vfs.OPath|unix.O_NOFOLLOW, 0)
		}
		if err != nil {
			return grants, err
		}
		mode, err := addPermissions(fd)
		if err != nil || mode == nil {
			unix.Close(fd)
			if err != nil {
				return grants, err
			}
			continue
		}
		grants = append(grants, grant{fd, *mode})
	}
	return grants, nil
}

// addPermissions gives the owner of the open inode fd the permissions to read and write it, and to enter a
// directory. It returns the former mode, or nil if nothing was changed or this user may not change it.
func addPermissions(fd int) (was *uint32, err error) {
	st, err := vfs.Lstat(fd, "")
	if err != nil {
		return nil, err
	}
	var need uint32
	switch {
	case st.IsDir():
		need = 0o700
	case st.IsRegular():
		need = 0o600
	}
	mode := st.Mode & 0o7777
	if mode&need == need {
		return nil, nil
	}
	switch err := unix.Chmod(vfs.PathTo(fd), mode|need); {
	case errors.Is(err, os.ErrPermission):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &mode, nil
}

// leavesOut reports whether to ignore err from setting the extended attribute name, because only root may set
// it and this process is an ordinary user's. If so, it first reports the attribute to the caller of [Apply]
// through Options.LeftOut.
func (a *applier) leavesOut(c *command, name string, err error) bool {
	if a.chowns || !errors.Is(err, unix.EPERM) || !strings.HasPrefix(name, "trusted.") && !strings.HasPrefix(name, "security.") {
		return false
	}
	if a.leftOut != nil {
		a.leftOut(string(c.parts[aPath]), name)
	}
	return true
}
