package promote

import (
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
	domain     string   // see nodes.Domain
	dir        *os.File // if open
	shares     bool     // small files are reflinks of the sandbox's
}

const stagePrefix = ".snapfs-apply-"

// stageFor returns the index of the stage for nodes in the real directory path, of which st is the stat: a private
// directory on the same mount and in the same domain, so that a rename suffices. It plans one if there is none.
func (p *planner) stageFor(path string, st *vfs.Stat) (int, error) {
	for i, s := range p.stages {
		if s.mount == st.Mount && s.dev == st.Dev && s.domain == p.inDomain {
			return i, nil
		}
	}
	s := &stage{where: path, mount: st.Mount, dev: st.Dev, domain: p.inDomain}
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
		if above.Mount != s.mount || above.Dev != s.dev || !nodes.Writable(dir) || nodes.Domain(dir) != s.domain {
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

// besideRoot reports whether the parent directory of the target's root can hold s, a private directory of the
// promotion: it is writable, on the same mount and in the same domain.
func besideRoot(root *os.File, s *stage) bool {
	up, err := nodes.OpenAbove(root)
	if err != nil {
		return false
	}
	defer up.Close()
	st, err := vfs.Lstat(int(up.Fd()), "")
	self, err2 := vfs.Lstat(int(root.Fd()), "")
	return err == nil && err2 == nil && st.Ino != self.Ino && st.Mount == s.mount && st.Dev == s.dev && nodes.Writable(up) && nodes.Domain(up) == s.domain
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
	up, err := nodes.OpenAbove(real.Root)
	if err != nil {
		return err
	}
	defer up.Close()
	return f(up)
}

// make creates the stage: private, without inherited attributes, and empty but for [nodes.IgnoreName].
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
		return nodes.Ignore(s.dir, s.name)
	})
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
		at, mode, mend, err := nodes.OthersAccess(f)
		if err == nil && mend != "" {
			err = errs.New("opening", at, errs.ErrCorrupt, fmt.Sprintf("others have access to this private directory of snapfs's (mode %04o)", mode), mend+errs.Quoted(at))
		}
		if err != nil {
			f.Close()
			return err
		}
		s.dir = f
		return nil
	})
}

// remove removes the stage and everything in it, [nodes.IgnoreName] last.
func (s *stage) remove(real *nodes.Dirs) error {
	if s.dir == nil {
		return nil
	}
	if err := nodes.Empty(s.dir, nodes.IgnoreName); err != nil {
		return err
	}
	if err := unix.Unlinkat(int(s.dir.Fd()), nodes.IgnoreName, 0); err != nil && err != unix.ENOENT {
		return &os.PathError{Op: "remove", Path: s.name + "/" + nodes.IgnoreName, Err: err}
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
