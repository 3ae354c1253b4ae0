package promote

import (
	"errors"
	"fmt"
	"os"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/promote/nodes"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A stage is a private directory on a filesystem of the target. It holds new versions before
// they move, and old versions afterwards. Its name contains the promotion's id, and thereby
// the process that created it.
type stage struct {
	beside bool   // in the parent directory of the target's root
	where  string // otherwise in this directory of the target
	name   string

	mount, dev uint64   // of nodes that can be renamed into it
	dir        *os.File // if open
	shares     bool     // small files are reflinks of the sandbox's
}

const stagePrefix = ".snapfs-apply-"

// ignoreName is a file with the pattern "*" in each stage, the private directory of old and new versions. A
// stage may lie in a git work tree, for years if it is retained for an undo. Because of this file `git
// status` does not list it and `git clean -fd` does not delete it (gitignore(5)).
const ignoreName = ".gitignore"

// stageFor returns the index of the stage for nodes in the real directory path: a private directory on the
// same mount, so that a rename suffices. It plans a new stage if there is none. st is the directory's stat.
func (p *planner) stageFor(path string, st *vfs.Stat) (int, error) {
	for i, s := range p.stages {
		if s.mount == st.Mount && s.dev == st.Dev {
			return i, nil
		}
	}
	s := &stage{where: path, mount: st.Mount, dev: st.Dev}
	for s.where != "." {
		up, _ := diff.Split(s.where)
		dir, err := p.real.Dir(up)
		if err != nil {
			return 0, err
		}
		above, err := vfs.Lstat(int(dir.Fd()), "")
		if err != nil {
			return 0, err
		}
		if above.Mount != s.mount || above.Dev != s.dev || !writable(dir) {
			break
		}
		s.where = up
	}
	if s.where == "." {
		s.beside = besideRoot(p.t.Root, s)
	}
	if !s.beside {
		dir, err := p.real.Dir(s.where)
		if err != nil {
			return 0, err
		}
		at, err := vfs.Lstat(int(dir.Fd()), "")
		if err != nil {
			return 0, err
		}
		p.changedAt(s.where, &at)
	}
	p.stages = append(p.stages, s)
	return len(p.stages) - 1, nil
}

func writable(dir *os.File) bool {
	return unix.Faccessat(int(dir.Fd()), ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS) == nil
}

// besideRoot reports whether the parent directory of the target's root can hold s, a private directory of the
// promotion: it is writable and on the same mount.
func besideRoot(root *os.File, s *stage) bool {
	up, err := openAbove(root)
	if err != nil {
		return false
	}
	defer up.Close()
	st, err := vfs.Lstat(int(up.Fd()), "")
	self, err2 := vfs.Lstat(int(root.Fd()), "")
	return err == nil && err2 == nil && st.Ino != self.Ino && st.Mount == s.mount && st.Dev == s.dev && writable(up)
}

func openAbove(root *os.File) (*os.File, error) {
	fd, err := unix.Openat(int(root.Fd()), "..", vfs.OPath|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "..", Err: err}
	}
	return os.NewFile(uintptr(fd), ".."), nil
}

// in calls f with the open directory that contains the stage, a promotion's private directory: the parent of
// the target, or a directory in it.
func (s *stage) in(real *nodes.Dirs, f func(dir *os.File) error) error {
	if !s.beside {
		dir, err := real.Dir(s.where)
		if err != nil {
			return err
		}
		return f(dir)
	}
	up, err := openAbove(real.Root)
	if err != nil {
		return err
	}
	defer up.Close()
	return f(up)
}

// make creates the stage, a private directory for a promotion's files: without inherited attributes, and
// empty but for .gitignore (ignoreName).
func (s *stage) make(real *nodes.Dirs) error {
	return s.in(real, func(dir *os.File) error {
		if err := unix.Mkdirat(int(dir.Fd()), s.name, 0o700); err != nil {
			return &os.PathError{Op: "mkdir", Path: s.name, Err: err}
		}
		f, err := vfs.OpenDir(int(dir.Fd()), s.name)
		if err != nil {
			return err
		}
		s.dir = f
		err = nodes.Meta{What: diff.Mode | diff.Owner | diff.Xattrs, Mode: 0o700, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}.Set(f)
		if err != nil {
			return err
		}
		return s.ignore()
	})
}

// ignore creates the file .gitignore (ignoreName) in the private directory of the promotion if it does not
// exist.
func (s *stage) ignore() error {
	fd, err := unix.Openat(int(s.dir.Fd()), ignoreName, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err == unix.EEXIST {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: s.name + "/" + ignoreName, Err: err}
	}
	f := os.NewFile(uintptr(fd), s.name+"/"+ignoreName)
	_, err = f.WriteString("*\n")
	return errors.Join(err, f.Close())
}

// open opens the stage, a private directory that an earlier process created for a promotion, as s.dir, which
// stays nil if the directory does not exist.
func (s *stage) open(real *nodes.Dirs) error {
	return s.in(real, func(dir *os.File) error {
		f, err := vfs.OpenDir(int(dir.Fd()), s.name)
		if nodes.Missing(err) {
			return nil
		}
		if err != nil {
			return err
		}
		st, err := vfs.Lstat(int(f.Fd()), "")
		if err == nil && (int(st.UID) != os.Geteuid() || st.Mode&0o077 != 0) {
			at, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd())) // hints need the whole path
			mend := map[bool]string{true: "ls -ld ", false: "chmod 700 "}[int(st.UID) != os.Geteuid() || st.Mode&0o022 != 0]
			err = errs.New("opening", at, errs.ErrCorrupt, fmt.Sprintf("others have access to this private directory of snapfs's (mode %04o)", st.Mode&0o7777), mend+errs.Quoted(at))
		}
		if err != nil {
			f.Close()
			return err
		}
		s.dir = f
		return nil
	})
}

// remove removes the stage, the private directory of a promotion, and everything in it, .gitignore
// (ignoreName) last.
func (s *stage) remove(real *nodes.Dirs) error {
	if s.dir == nil {
		return nil
	}
	if err := nodes.Empty(s.dir, ignoreName); err != nil {
		return err
	}
	if err := unix.Unlinkat(int(s.dir.Fd()), ignoreName, 0); err != nil && err != unix.ENOENT {
		return &os.PathError{Op: "remove", Path: s.name + "/" + ignoreName, Err: err}
	}
	s.close()
	return s.in(real, func(dir *os.File) error {
		err := unix.Unlinkat(int(dir.Fd()), s.name, unix.AT_REMOVEDIR)
		if err != nil && err != unix.ENOENT {
			return &os.PathError{Op: "rmdir", Path: s.name, Err: err}
		}
		return nil
	})
}

func (s *stage) close() {
	if s.dir != nil {
		s.dir.Close()
		s.dir = nil
	}
}
