package promote

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// judge says whether something is to be done for a change, given what the real
// tree holds at its path (nil for nothing). A path that has drifted is noted,
// and one that is as it should be already.
func (p *planner) judge(c diff.Change, real *diff.Node) (todo bool, err error) {
	switch {
	case c.Kind == diff.Added && real == nil:
		return true, nil
	case c.Kind == diff.Deleted && real == nil:
		p.already = append(p.already, c.Path)
		return false, nil
	case real == nil && p.goneKnown(c.Path):
		return true, nil
	case real == nil:
		p.drift(c.Path, "it has been deleted since")
		return false, nil
	case p.known(c.Path, real):
		if c.New == nil {
			return true, nil
		}
		same, err := p.same(c, real, true)
		if same {
			p.already = append(p.already, c.Path)
		}
		return !same, err
	}
	why := "something has been made there since"
	if c.Kind != diff.Added {
		if why, err = p.moved(c, real); err != nil || why == "" {
			return err == nil, err
		}
	}
	same := false
	if c.New != nil {
		same, err = p.same(c, real, false)
	}
	if same {
		p.already = append(p.already, c.Path)
	} else if err == nil {
		p.drift(c.Path, why)
	}
	return false, err
}

// same reports whether the real tree holds what the change wants, its time
// included or not.
func (p *planner) same(c diff.Change, real *diff.Node, times bool) (bool, error) {
	switch {
	case !alike(c.New, real, times):
		return false, nil
	case times && isDir(real) && c.What&diff.Time != 0:
		return c.New.MTime.Equal(real.MTime), nil
	case real.Mode.IsRegular():
		from, path := p.from.at(c.Path)
		return sameContent(from, path, p.t.Root, c.Path)
	}
	return true, nil
}

func (p *planner) known(path string, real *diff.Node) bool {
	s, ok := p.base.Known[path]
	return ok && s.Ino == real.Ino && s.CTime.Equal(real.CTime)
}

// goneKnown reports whether an earlier promotion has deleted a path.
func (p *planner) goneKnown(path string) bool {
	s, ok := p.base.Known[path]
	return ok && s.Ino == 0 && s.CTime.IsZero()
}

// moved says why a real node is not the one that the base holds, or "".
func (p *planner) moved(c diff.Change, real *diff.Node) (string, error) {
	switch {
	case c.Old.Mode.Type() != real.Mode.Type():
		return "it has become something else since", nil
	case !alike(c.Old, real, true):
		return "it has been changed since", nil
	case real.CTime.Before(p.base.Taken):
		dir, _ := split(c.Path)
		return p.lift(dir), nil
	case isDir(real):
		// A later change time is also that of a name that came or went.
		if !p.base.Frozen && c.What&(diff.Mode|diff.Owner|diff.Xattrs) != 0 {
			return "it has been changed since", nil
		}
		return "", nil
	case !p.base.Frozen:
		return "it has been changed since", nil
	case !real.Mode.IsRegular():
		return "", nil
	case p.base.Root == nil:
		return "it has been changed since", nil
	}
	same, err := sameContent(p.base.Root, c.Path, p.t.Root, c.Path)
	if err != nil || same {
		return "", err
	}
	return "its content has been changed since", nil
}

// lift says why the files in a directory may be others than those that a live
// base showed, or "": it was made, or moved there, since. A directory's change
// time tells that only where no name in it has changed since.
func (p *planner) lift(dir string) string {
	if p.base.Frozen || dir == "." {
		return ""
	}
	if why, ok := p.lifted[dir]; ok {
		return why
	}
	up, _ := split(dir)
	why := p.lift(up)
	st, err := p.real.stat(dir)
	switch late := func(t vfs.Timestamp) bool { return !t.Time().Before(p.base.Taken) }; {
	case why != "" || err != nil:
	case p.known(dir, &diff.Node{Ino: st.Ino, CTime: st.CTime.Time()}):
	case late(st.BTime) && st.BTime != (vfs.Timestamp{}):
		why = "its directory has been replaced since"
	case late(st.CTime) && !late(st.MTime):
		why = "its directory has been moved or changed since"
	}
	p.lifted[dir] = why
	return why
}

// sameContent compares a regular file of each of two trees. One that is not there, or
// of another type by now, is not the same.
func sameContent(a *os.File, inA string, b *os.File, inB string) (bool, error) {
	f, err := openRegular(a, inA)
	if err != nil {
		return false, gone(err)
	}
	defer f.Close()
	g, err := openRegular(b, inB)
	if err != nil {
		return false, gone(err)
	}
	defer g.Close()
	two := buffers.Get().(*[2][128 << 10]byte) //nolint:errcheck // nothing else is put there
	defer buffers.Put(two)
	x, y := two[0][:], two[1][:]
	for {
		n, err1 := io.ReadFull(f, x)
		m, err2 := io.ReadFull(g, y)
		if !bytes.Equal(x[:n], y[:m]) {
			return false, nil
		}
		if ended(err1) && ended(err2) {
			return true, nil
		}
		if err := errors.Join(err1, err2); err != nil {
			return false, err
		}
	}
}

// buffers are those of comparisons: thousands of small files share one.
var buffers = sync.Pool{New: func() any { return new([2][128 << 10]byte) }}

func ended(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

var errNotRegular = errors.New("not a regular file")

func gone(err error) error {
	if missing(err) || errors.Is(err, errNotRegular) {
		return nil
	}
	return err
}

// openRegular opens a regular file beneath a root for reading; opening anything
// else has no effect on it.
func openRegular(root *os.File, path string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK
	f, err := openBeneath(root, path, flags|vfs.ONoatime)
	if errors.Is(err, unix.EPERM) {
		f, err = openBeneath(root, path, flags)
	}
	if err != nil {
		return nil, err
	}
	st, err := vfs.Lstat(int(f.Fd()), "")
	if err == nil && !st.IsRegular() {
		err = errNotRegular
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
