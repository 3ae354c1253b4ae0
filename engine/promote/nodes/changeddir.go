package nodes

import (
	"errors"
	"os"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A ChangedDir is a directory of the target in which the promotion adds, removes or replaces names. It holds
// the directory's state before, which a revert restores.
type ChangedDir struct {
	Path  string // in the target
	Ino   uint64
	Mode  uint32 // permissions
	MTime vfs.Timestamp
	Names bool // names in it change
	Widen bool // its owner lacks permissions that the promotion needs
}

// Look sets the state of the directory, except for its path and inode, to that of dir, which is open.
func (c *ChangedDir) Look(dir *os.File) error {
	st, err := vfs.Lstat(int(dir.Fd()), "")
	c.Mode, c.MTime, c.Widen = st.Mode&0o7777, st.MTime, LacksRights(&st)
	return err
}

// LacksRights reports whether this user, who is not root, owns a directory but lacks the permissions to
// change names in it. A promotion then adds these permissions for a while.
func LacksRights(st *vfs.Stat) bool {
	return os.Geteuid() != 0 && int(st.UID) == os.Geteuid() && st.Mode&unix.S_IRWXU != unix.S_IRWXU
}

// Open returns the real directory open, or nil if another directory, or none, has its path by now. real, the
// cache of open directories, closes it.
func (c *ChangedDir) Open(real *Dirs) (*os.File, error) {
	return real.DirWith(c.Path, c.Ino)
}

// SetMode sets the permissions of a real directory in which the promotion changes names, if it still exists.
func (c *ChangedDir) SetMode(real *Dirs, mode uint32) error {
	dir, err := c.Open(real)
	if err != nil || dir == nil {
		return err
	}
	return Chmod(dir, mode)
}

// Restore gives the directory the permissions and the modification time that it had before the promotion.
func (c *ChangedDir) Restore(real *Dirs) error {
	dir, err := c.Open(real)
	if err != nil || dir == nil {
		return err
	}
	var errs []error
	if c.Widen {
		errs = append(errs, Chmod(dir, c.Mode))
	}
	return errors.Join(append(errs, SetOldTime(dir, c.MTime))...)
}
