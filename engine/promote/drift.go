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

// needed reports whether a change must be made, where real is the target's node at its path,
// nil for none. It records a path that has drifted, and one that is already as wanted.
func (p *planner) needed(c diff.Change, real *diff.Node) (todo bool, err error) {
	switch {
	case c.Kind == diff.Added && real == nil:
		return true, nil
	case c.Kind == diff.Deleted && real == nil:
		p.already = append(p.already, c.Path)
		return false, nil
	case real == nil && p.knownDeleted(c.Path):
		return true, nil
	case real == nil:
		p.drift(c.Path, "deleted since")
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
	why := "created since"
	if c.Kind != diff.Added {
		if why, err = p.driftOf(c, real); err != nil || why == "" {
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

// same reports whether the real node has the metadata and content of the change's new node;
// with times, also the modification time.
func (p *planner) same(c diff.Change, real *diff.Node, times bool) (bool, error) {
	switch {
	case !sameMetadata(c.New, real, times):
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

// knownDeleted reports whether an earlier promotion deleted a path.
func (p *planner) knownDeleted(path string) bool {
	s, ok := p.base.Known[path]
	return ok && s.Ino == 0 && s.CTime.IsZero()
}

// driftOf returns why a real node differs from the base's node, or "".
func (p *planner) driftOf(c diff.Change, real *diff.Node) (string, error) {
	switch {
	case c.Old.Mode.Type() != real.Mode.Type():
		return "its type has changed since", nil
	case !sameMetadata(c.Old, real, true):
		return "changed since", nil
	case real.CTime.Before(p.base.Taken):
		dir, _ := split(c.Path)
		return p.dirDrift(dir), nil
	case isDir(real):
		// Adding or removing a name changes a directory's change time, too.
		if !p.base.Frozen && c.What&(diff.Mode|diff.Owner|diff.Xattrs) != 0 {
			return "changed since", nil
		}
		return "", nil
	case !p.base.Frozen:
		return "changed since", nil
	case !real.Mode.IsRegular():
		return "", nil
	case p.base.Root == nil:
		return "changed since", nil
	}
	same, err := sameContent(p.base.Root, c.Path, p.t.Root, c.Path)
	if err != nil || same {
		return "", err
	}
	return "its content has been changed since", nil
}

// dirDrift returns why files in a directory may not be those that a live base showed, or "": the
// directory was created or moved there since. Its change time proves a move only if no name
// in it has changed since.
func (p *planner) dirDrift(dir string) string {
	if p.base.Frozen || dir == "." {
		return ""
	}
	if why, ok := p.dirDrifts[dir]; ok {
		return why
	}
	up, _ := split(dir)
	why := p.dirDrift(up)
	st, err := p.real.stat(dir)
	switch late := func(t vfs.Timestamp) bool { return !t.Time().Before(p.base.Taken) }; {
	case why != "" || err != nil:
	case p.known(dir, &diff.Node{Ino: st.Ino, CTime: st.CTime.Time()}):
	case late(st.BTime) && st.BTime != (vfs.Timestamp{}):
		why = "its directory has been replaced since"
	case late(st.CTime) && !late(st.MTime):
		why = "its directory has been moved or changed since"
	}
	p.dirDrifts[dir] = why
	return why
}

// sameContent compares one regular file in each of two trees. A file that is missing or has
// another type by now is different.
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

// buffers are shared by the comparisons of many small files.
var buffers = sync.Pool{New: func() any { return new([2][128 << 10]byte) }}

func ended(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

var errNotRegular = errors.New("not a regular file")

func gone(err error) error {
	if missing(err) || errors.Is(err, errNotRegular) {
		return nil
	}
	return err
}

// openRegular opens a regular file below a root for reading; the caller closes it. Opening a
// node of another type has no effect on it and returns errNotRegular.
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
