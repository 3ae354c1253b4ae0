package promote

import (
	"errors"
	"os"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A place is a directory of the target in which something is moved, as it was
// before. Taking back restores it.
type place struct {
	path  string
	ino   uint64
	mode  uint32 // permissions
	mtime vfs.Timestamp
	names bool // names in it change
	widen bool // this user has to give himself the right to change it first
}

// placeOf prepares the directory that an op moves something in, and where its
// new version is to be staged.
func (p *planner) placeOf(o *op) error {
	path, _ := split(o.path)
	dir, err := p.real.dir(path)
	if err != nil {
		return err
	}
	if dir != p.in { // it stays open while ops in it follow one another
		if p.inStat, err = vfs.Lstat(int(dir.Fd()), ""); err != nil {
			return err
		}
		p.in = dir
	}
	st := p.inStat
	known := p.places[path] != nil && p.places[path].names
	pl := p.placeAt(path, &st)
	pl.names = true
	if err := p.mayChange(o, dir, &st, pl, known); err != nil {
		return err
	}
	o.stage, err = p.stageFor(path, &st)
	return err
}

func (p *planner) placeAt(path string, st *vfs.Stat) *place {
	if p.places[path] == nil {
		p.places[path] = &place{
			path: path, ino: st.Ino, mode: st.Mode & 0o7777, mtime: st.MTime,
			widen: os.Geteuid() != 0 && int(st.UID) == os.Geteuid() && st.Mode&unix.S_IRWXU != unix.S_IRWXU,
		}
	}
	return p.places[path]
}

// mayChange notes what would be refused later, as far as it can be told.
func (p *planner) mayChange(o *op, dir *os.File, st *vfs.Stat, pl *place, known bool) error {
	if !known {
		err := unix.Faccessat(int(dir.Fd()), ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS)
		switch {
		case err == nil, err == unix.EACCES && pl.widen:
		case err == unix.EACCES || err == unix.EPERM:
			p.barred.Add(pl.path, "this user may not change names in it")
		default:
			return &os.PathError{Op: "access", Path: pl.path, Err: err}
		}
		if st.Fixed {
			p.barred.Add(pl.path, "it is immutable or append-only (chattr -i -a)")
		}
	}
	if o.seen == nil {
		return nil
	}
	if o.fixed {
		p.barred.Add(o.path, "it is immutable or append-only (chattr -i -a)")
	}
	me := uint32(os.Geteuid())
	if st.Mode&unix.S_ISVTX != 0 && me != 0 && st.UID != me && o.seen.UID != me {
		p.barred.Add(o.path, "it belongs to another user, in a directory with the sticky bit")
	}
	return nil
}

// open opens the directory of a place, if it is still that one; nil if not.
func (pl *place) open(real *dirs) (*os.File, error) {
	dir, err := real.dir(pl.path)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if dir == real.same {
		return dir, nil // it stays open, and is what it was
	}
	st, err := vfs.Lstat(int(dir.Fd()), "")
	if err != nil || st.Ino != pl.ino {
		return nil, err
	}
	if dir == real.last {
		real.same = dir
	}
	return dir, nil
}

// setMode sets the permissions of a place, if it is still there.
func (pl *place) setMode(real *dirs, mode uint32) error {
	dir, err := pl.open(real)
	if err != nil || dir == nil {
		return err
	}
	return chmod(dir, mode)
}

func chmod(f *os.File, mode uint32) error {
	if err := unix.Chmod(vfs.FDPath(f), mode); err != nil {
		return &os.PathError{Op: "chmod", Path: f.Name(), Err: err}
	}
	return nil
}

// restore makes a place what it was.
func (pl *place) restore(real *dirs) error {
	dir, err := pl.open(real)
	if err != nil || dir == nil {
		return err
	}
	var errs []error
	if pl.widen {
		errs = append(errs, chmod(dir, pl.mode))
	}
	return errors.Join(append(errs, setOldTime(dir, pl.mtime))...)
}

// setOldTime gives a directory the time that it had. Another user's, in which this one may change names, keeps
// the time of that: only its owner and root may set it (utimensat(2)).
func setOldTime(f *os.File, t vfs.Timestamp) error {
	err := setTime(f, t)
	if errors.Is(err, unix.EPERM) {
		if st, serr := vfs.Lstat(int(f.Fd()), ""); serr == nil && int(st.UID) != os.Geteuid() {
			return nil
		}
	}
	return err
}

func setTime(f *os.File, t vfs.Timestamp) error {
	if err := vfs.SetTimes(int(f.Fd()), nil, t); err != nil {
		return &os.PathError{Op: "utimensat", Path: f.Name(), Err: err}
	}
	return nil
}
