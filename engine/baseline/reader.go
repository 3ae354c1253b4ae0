package baseline

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A RootedReader looks at places of one tree, following no symbolic link and never
// leaving it. It keeps the last directory open: paths mostly come in order.
type RootedReader struct {
	Root *os.File
	path string
	last *os.File
}

func (l *RootedReader) Close() {
	if l.last != nil {
		l.last.Close()
		l.last = nil
	}
}

// Dir opens a directory beneath the root; it stays open until the next call.
func (l *RootedReader) Dir(path string) (*os.File, error) {
	if path == "." {
		return l.Root, nil
	}
	if l.last != nil && l.path == path {
		return l.last, nil
	}
	l.Close()
	f, err := vfs.OpenBeneath(int(l.Root.Fd()), path, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	l.path, l.last = path, f
	return f, nil
}

// stat describes a path.
func (l *RootedReader) stat(path string) (vfs.Stat, error) {
	dir, err := l.Dir(filepath.Dir(path))
	if err != nil {
		return vfs.Stat{}, err
	}
	return vfs.Lstat(int(dir.Fd()), filepath.Base(path))
}

// Present describes a path but for what needs another look: a link's target and
// the attributes. nil where nothing is there.
func (l *RootedReader) Present(path string) (*diff.Node, error) {
	st, err := l.stat(path)
	if err != nil {
		return nil, Absence(err)
	}
	n := NodeOf(&st)
	if st.IsDir() {
		n.Size = 0
	}
	return n, nil
}

// Node describes a path as package diff does; nil where nothing is there.
func (l *RootedReader) Node(path string) (*diff.Node, error) {
	n, err := l.Present(path)
	if n == nil || err != nil {
		return nil, err
	}
	dir, err := l.Dir(filepath.Dir(path)) // it is open
	if err != nil {
		return nil, Absence(err)
	}
	name := filepath.Base(path)
	if n.Mode.Type() == fs.ModeSymlink {
		if n.Target, err = os.Readlink(vfs.FDPath(dir) + "/" + name); err != nil {
			return nil, Absence(err)
		}
		n.Size = int64(len(n.Target))
	}
	xattrs, err := vfs.Xattrs(int(dir.Fd()), name)
	for attr, value := range xattrs {
		if vfs.OverlayXattr(attr) {
			continue
		}
		if n.Xattrs == nil {
			n.Xattrs = map[string]string{}
		}
		n.Xattrs[attr] = value
	}
	return n, Absence(err)
}

// Open opens a regular file for reading; opening anything else has no effect on
// it, and is ErrNotFound like a file that is not there.
func (l *RootedReader) Open(path string) (*os.File, error) {
	fd, err := l.OpenFD(path)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// OpenFD does as open, and answers with the bare descriptor.
func (l *RootedReader) OpenFD(path string) (int, error) {
	const flags = syscall.O_RDONLY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	fd, err := vfs.OpenBeneathFD(int(l.Root.Fd()), path, flags|vfs.ONoatime, 0)
	if errors.Is(err, syscall.EPERM) {
		fd, err = vfs.OpenBeneathFD(int(l.Root.Fd()), path, flags, 0)
	}
	if err == nil {
		var st vfs.Stat
		if st, err = vfs.Lstat(fd, ""); err == nil && !st.IsRegular() {
			err = fs.ErrNotExist
		}
		if err != nil {
			syscall.Close(fd)
		}
	}
	if isAbsence(err) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return -1, &errs.Error{Op: "opening", Path: path, Kind: errs.KindOf(err), Err: err}
	}
	return fd, nil
}

// isAbsence: a path leads nowhere.
func isAbsence(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) || errors.Is(err, fs.ErrNotExist)
}

func Absence(err error) error {
	if isAbsence(err) {
		return nil
	}
	return err
}

// OpenRoot opens a directory of the real machine.
func OpenRoot(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, &errs.Error{Op: "opening", Path: dir, Kind: errs.KindOf(err), Err: err}
	}
	return f, nil
}

// A LiveBase finds out what a live base held, from the real tree as it is now.
type LiveBase struct {
	Real  RootedReader
	Taken time.Time
	// Mine opens the sandbox's tree, when it is needed.
	Mine func() (*os.File, error)
	// Known are the stamps of what promotions left as it is.
	Known map[string]promote.Stamp
	lifts map[string]string
}

func (b *LiveBase) ours(path string, st *vfs.Stat) bool {
	s, ok := b.Known[path]
	return ok && s.Ino == st.Ino && s.CTime.Equal(st.CTime.Time())
}

// At says what the base has at a path, nil for nothing; or why that is not known,
// and then what the real tree has there now.
//
// What a live base held is known where the real tree has not changed since: a
// file by its change time, and that there was nothing by the time of the
// directory. A directory in which names came and went later than the sandbox made
// something there shows nothing of what was there before; what the user had taken
// away when the sandbox made something there is what the sandbox began with, for
// on a live base it saw that.
func (b *LiveBase) At(path string) (n *diff.Node, why string, err error) {
	if why, err = b.copiedUp(filepath.Dir(path)); err != nil {
		return nil, "", err
	}
	n, err = b.Real.Node(path)
	switch {
	case err != nil:
		return nil, "", err
	case why != "":
	case n == nil:
		why, err = b.wasNothing(path)
	case !n.CTime.Before(b.Taken):
		why = "it has been changed since, and what it was is not known"
	}
	return n, why, err
}

func (b *LiveBase) wasNothing(path string) (why string, err error) {
	for {
		dir := filepath.Dir(path)
		up, err := b.Real.stat(dir)
		if dir == "." {
			up, err = vfs.Lstat(int(b.Real.Root.Fd()), "")
		}
		if isAbsence(err) {
			path = dir // it was not there because its directory was not
			continue
		}
		if err != nil {
			return "", err
		}
		if up.MTime.Time().Before(b.Taken) || b.ours(dir, &up) {
			return "", nil
		}
		return b.cameLater(path, up.MTime.Time())
	}
}

// cameLater: the sandbox made what it has at a path when the directory was
// already as it is now.
func (b *LiveBase) cameLater(path string, since time.Time) (why string, err error) {
	const unsure = "names came or went in its directory since, and whether it was one of them is not known"
	tree, err := b.Mine()
	if err != nil {
		return "", err
	}
	l := RootedReader{Root: tree}
	defer l.Close()
	st, err := l.stat(path)
	if err != nil {
		return unsure, Absence(err)
	}
	if st.BTime != (vfs.Timestamp{}) && since.Before(st.BTime.Time()) {
		return "", nil
	}
	return unsure, nil
}

// copiedUp says why what lies in a directory may be other than what the base had,
// or "": the directory was made, or moved there, since.
func (b *LiveBase) copiedUp(dir string) (why string, err error) {
	if dir == "." {
		return "", nil
	}
	if why, ok := b.lifts[dir]; ok {
		return why, nil
	}
	if why, err = b.copiedUp(filepath.Dir(dir)); err != nil {
		return "", err
	}
	st, err := b.Real.stat(dir)
	switch late := func(t vfs.Timestamp) bool { return !t.Time().Before(b.Taken) }; {
	case why != "" || isAbsence(err):
	case err != nil:
		return "", err
	case b.ours(dir, &st):
	case late(st.BTime) && st.BTime != (vfs.Timestamp{}):
		why = "its directory has been replaced since"
	case late(st.CTime) && !late(st.MTime):
		why = "its directory has been moved or changed since"
	}
	if b.lifts == nil {
		b.lifts = map[string]string{}
	}
	b.lifts[dir] = why
	return why, nil
}

func NodeOf(st *vfs.Stat) *diff.Node {
	return &diff.Node{
		Mode: st.FileMode(), UID: st.UID, GID: st.GID, Size: st.Size,
		MTime: st.MTime.Time(), CTime: st.CTime.Time(), Rdev: st.Rdev,
		Ino: st.Ino, Dev: st.Dev, NLink: st.Nlink,
	}
}
