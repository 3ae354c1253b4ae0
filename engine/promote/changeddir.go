package promote

import (
	"os"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/promote/nodes"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// prepareDir stores the state of the real directory in which the step o moves a node, as a nodes.ChangedDir. It
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
		p.in, p.inDomain = dir, nodes.Domain(dir)
	}
	st := p.inStat
	known := p.changed[path] != nil && p.changed[path].Names
	pl := p.changedAt(path, &st)
	pl.Names = true
	if err := p.mayChange(o, dir, &st, pl, known); err != nil {
		return err
	}
	o.stage, err = p.stageFor(path, &st)
	return err
}

func (p *planner) changedAt(path string, st *vfs.Stat) *nodes.ChangedDir {
	if p.changed[path] == nil {
		p.changed[path] = &nodes.ChangedDir{
			Path: path, Ino: st.Ino, Mode: st.Mode & 0o7777, MTime: st.MTime,
			Widen: nodes.LacksRights(st),
		}
	}
	return p.changed[path]
}

// mayChange adds to p.denied why the kernel would later refuse the promotion's step o in the real directory dir, as
// far as permissions and attributes show that. st is the directory's stat and pl its state before the promotion.
// known means that dir itself has been checked.
func (p *planner) mayChange(o *op, dir *os.File, st *vfs.Stat, pl *nodes.ChangedDir, known bool) error {
	if !known {
		err := unix.Faccessat(int(dir.Fd()), ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS)
		switch {
		case err == nil, err == unix.EACCES && pl.Widen:
		case err == unix.EACCES || err == unix.EPERM:
			p.denied.Add(pl.Path, "no write permission")
		default:
			return &os.PathError{Op: "access", Path: pl.Path, Err: err}
		}
		if st.Fixed {
			p.denied.Add(pl.Path, "it is immutable or append-only (chattr -i -a)")
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
