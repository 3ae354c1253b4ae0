package promote

import (
	"errors"
	"os"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/promote/nodes"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A changedDir is a directory of the target in which the promotion adds, removes or replaces names. It holds
// the directory's state before, which a revert restores.
type changedDir struct {
	path  string
	ino   uint64
	mode  uint32 // permissions
	mtime vfs.Timestamp
	names bool // names in it change
	widen bool // its owner lacks permissions that the promotion needs
}

// prepareDir stores the state of the real directory in which the step o moves a node, as a changedDir. It
// sets o.stage to a stage, a private directory of the promotion, on the directory's filesystem.
func (p *planner) prepareDir(o *op) error {
	path, _ := diff.Split(o.path)
	dir, err := p.real.Dir(path)
	if err != nil {
		return err
	}
	if dir != p.in { // reuse it while ops in it follow one another
		if p.inStat, err = vfs.Lstat(int(dir.Fd()), ""); err != nil {
			return err
		}
		p.in = dir
	}
	st := p.inStat
	known := p.changed[path] != nil && p.changed[path].names
	pl := p.changedAt(path, &st)
	pl.names = true
	if err := p.mayChange(o, dir, &st, pl, known); err != nil {
		return err
	}
	o.stage, err = p.stageFor(path, &st)
	return err
}

func (p *planner) changedAt(path string, st *vfs.Stat) *changedDir {
	if p.changed[path] == nil {
		p.changed[path] = &changedDir{
			path: path, ino: st.Ino, mode: st.Mode & 0o7777, mtime: st.MTime,
			widen: lacksRights(st),
		}
	}
	return p.changed[path]
}

// lacksRights reports whether this user, who is not root, owns a directory but lacks the permissions to
// change names in it. A promotion then adds these permissions for a while.
func lacksRights(st *vfs.Stat) bool {
	return os.Geteuid() != 0 && int(st.UID) == os.Geteuid() && st.Mode&unix.S_IRWXU != unix.S_IRWXU
}

// mayChange adds to p.denied why the kernel would later refuse the promotion's step o in the real directory dir, as
// far as permissions and attributes show that. st is the directory's stat and pl its state before the promotion.
// known means that dir itself has been checked.
func (p *planner) mayChange(o *op, dir *os.File, st *vfs.Stat, pl *changedDir, known bool) error {
	if !known {
		err := unix.Faccessat(int(dir.Fd()), ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS)
		switch {
		case err == nil, err == unix.EACCES && pl.widen:
		case err == unix.EACCES || err == unix.EPERM:
			p.denied.Add(pl.path, "no write permission")
		default:
			return &os.PathError{Op: "access", Path: pl.path, Err: err}
		}
		if st.Fixed {
			p.denied.Add(pl.path, "it is immutable or append-only (chattr -i -a)")
		}
	}
	if o.found == nil {
		return nil
	}
	if o.fixed {
		p.denied.Add(o.path, "it is immutable or append-only (chattr -i -a)")
	}
	me := uint32(os.Geteuid())
	if st.Mode&unix.S_ISVTX != 0 && me != 0 && st.UID != me && o.found.UID != me {
		p.denied.Add(o.path, "it belongs to another user, in a directory with the sticky bit")
	}
	return nil
}

// open returns the real directory open, or nil if another directory, or none, has its path by now. real, the
// cache of open directories, closes it.
func (pl *changedDir) open(real *nodes.Dirs) (*os.File, error) {
	return real.DirWith(pl.path, pl.ino)
}

// setMode sets the permissions of a real directory in which the promotion changes names, if it still exists.
func (pl *changedDir) setMode(real *nodes.Dirs, mode uint32) error {
	dir, err := pl.open(real)
	if err != nil || dir == nil {
		return err
	}
	return nodes.Chmod(dir, mode)
}

// restore gives the directory the permissions and the modification time that it had before the promotion.
func (pl *changedDir) restore(real *nodes.Dirs) error {
	dir, err := pl.open(real)
	if err != nil || dir == nil {
		return err
	}
	var errs []error
	if pl.widen {
		errs = append(errs, nodes.Chmod(dir, pl.mode))
	}
	return errors.Join(append(errs, nodes.SetOldTime(dir, pl.mtime))...)
}
