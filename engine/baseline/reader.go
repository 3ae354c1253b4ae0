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

// RootedReader reads files by their paths below one directory. It follows no symbolic link and never leaves
// the directory. It caches the last opened subdirectory, because callers mostly go in path order; so it is
// not safe for concurrent use.
type RootedReader struct {
	Root *os.File
	path string
	last *os.File
}

// Close closes the subdirectory that the reader holds open for the next call, not Root, which the caller
// owns.
func (l *RootedReader) Close() {
	if l.last != nil {
		l.last.Close()
		l.last = nil
	}
}

// Dir opens a directory below the root for the caller to read. The reader owns the file, which is valid until
// the next call.
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

// stat returns the inode metadata of a path below the root, or of the root itself for "."; of a symbolic link, not its
// target.
func (l *RootedReader) stat(path string) (vfs.Stat, error) {
	dir, err := l.Dir(filepath.Dir(path))
	if err != nil {
		return vfs.Stat{}, err
	}
	return vfs.Lstat(int(dir.Fd()), filepath.Base(path))
}

// onRootMount reports whether the file at a path, or where there is none the nearest directory above it, certainly lies
// in the mount and the filesystem of the root. The device of a file that is no directory does not count: overlayfs shows
// that of the layer.
func (l *RootedReader) onRootMount(path string) bool {
	top, err := vfs.Lstat(int(l.Root.Fd()), "")
	if err != nil {
		return false
	}
	for ; path != "."; path = filepath.Dir(path) {
		st, err := l.stat(path)
		switch {
		case isAbsence(err):
		case err != nil || st.Mount != top.Mount || st.MountRoot || st.IsDir() && st.Dev != top.Dev:
			return false
		case st.IsDir():
			return true
		}
	}
	return true
}

// Present returns the node (type, metadata) of the file at a path below the root, without link target and
// extended attributes, at the cost of one statx. It returns nil if the path does not exist.
func (l *RootedReader) Present(path string) (*diff.Node, error) {
	st, err := l.stat(path)
	if err != nil {
		return nil, Absence(err)
	}
	return diff.NodeOf(&st), nil
}

// Node returns the node (type, metadata, link target, extended attributes) of the file at a path below the
// root, or nil if the path does not exist.
func (l *RootedReader) Node(path string) (*diff.Node, error) {
	n, err := l.Present(path)
	if n == nil || err != nil {
		return nil, err
	}
	dir, err := l.Dir(filepath.Dir(path)) // cached by Present
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

// Open opens the regular file at a path below the root for reading, without blocking on a fifo or device. The
// caller closes it. Error: errs.ErrNotFound if the path is absent or not a regular file.
func (l *RootedReader) Open(path string) (*os.File, error) {
	fd, err := l.OpenFD(path)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// OpenFD opens the file at a path below the root as Open does, but returns a bare descriptor, which the
// caller closes.
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
		return -1, errs.With("opening", path, err)
	}
	return fd, nil
}

// isAbsence reports whether an error of opening or reading a path means that the path does not exist.
func isAbsence(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) || errors.Is(err, fs.ErrNotExist)
}

// Absence returns nil for an error which means that a path does not exist, and other errors unchanged, for
// callers that treat a missing file as no error.
func Absence(err error) error {
	if isAbsence(err) {
		return nil
	}
	return err
}

// OpenRoot opens a directory of the host for reading, as the root of a [RootedReader]; the caller closes it.
// The last path element must not be a symbolic link.
func OpenRoot(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, errs.With("opening", dir, err)
	}
	return f, nil
}

// LiveBase finds, from the real tree as it is now, the state that paths had when the sandbox started. It
// serves sandboxes whose base is the real tree itself (a live base) and not a copy.
type LiveBase struct {
	Real RootedReader
	// Since is the instant of the state, see [Recorder.Since]. It comes from the
	// clock that stamps files, so no margin is needed.
	Since time.Time
	// OpenFork returns the root of the sandbox's tree, which it opens at the first call and
	// keeps open.
	OpenFork func() (*os.File, error)
	// Known are the stamps of paths that promotions of the sandbox changed.
	Known map[string]promote.Stamp
	// replacedDirs caches the results of dirReplaced by directory.
	replacedDirs map[string]string
}

// isPromoted reports whether the real file at path, with the metadata st, is still exactly as a promotion of
// the sandbox left it, by its inode and change time.
func (b *LiveBase) isPromoted(path string, st *vfs.Stat) bool {
	s, ok := b.Known[path]
	return ok && s.Ino == st.Ino && s.CTime.Equal(st.CTime.Time())
}

// At returns the node (type, metadata) of the file that the live base had at a path when the sandbox started,
// nil for none. If that is not known, why is the reason, and n the node that the real tree has now.
//
// The original is known as long as the real tree has not changed since the base was taken:
//
//   - a file is unchanged if its change time is older than the base, and no program has it mapped for writing;
//   - a path was absent if the modification time of its directory is older than the base, or older
//     than the sandbox's own file there, which the sandbox created while it saw the live directory.
func (b *LiveBase) At(path string) (n *diff.Node, why string, err error) {
	if why, err = b.dirReplaced(filepath.Dir(path)); err != nil {
		return nil, "", err
	}
	n, err = b.Real.Node(path)
	switch {
	case err != nil:
		return nil, "", err
	case why != "":
	case n == nil:
		why, err = b.knownAbsent(path)
	case !vfs.ChangedBefore(n.CTime, b.Since):
		why = "changed on both sides, and the original is no longer available"
	case n.Mode.IsRegular() && b.isMapped(path):
		why = mapped
	}
	return n, why, err
}

// mapped is the reason why the original of a file is unknown although its change time is older than the base.
const mapped = "a program has the real file mapped in memory, which can change it without a trace"

// isMapped reports whether a program may change the real file at path through a memory mapping, see [vfs.IsMapped]. It
// returns false for a file that this user may not read.
func (b *LiveBase) isMapped(path string) bool {
	f, err := b.Real.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return vfs.IsMapped(f)
}

// knownAbsent returns "" if the base had nothing at a path that the real tree does not have either, and
// otherwise the reason why that is not known.
func (b *LiveBase) knownAbsent(path string) (why string, err error) {
	for {
		dir := filepath.Dir(path)
		up, err := b.Real.stat(dir)
		if isAbsence(err) {
			path = dir // absent because its directory is absent
			continue
		}
		if err != nil {
			return "", err
		}
		if vfs.ChangedBefore(up.MTime.Time(), b.Since) || b.isPromoted(dir, &up) {
			return "", nil
		}
		return b.createdAfter(path, up.MTime.Time())
	}
}

// createdAfter returns "" if the sandbox created its file at path after since, the time of the last change of
// the real directory. Then the real tree had no such file at that moment. Otherwise it returns why the
// original is not known.
func (b *LiveBase) createdAfter(path string, since time.Time) (why string, err error) {
	const unsure = "cannot tell whether this file existed when the sandbox was made"
	tree, err := b.OpenFork()
	if err != nil {
		return "", err
	}
	l := RootedReader{Root: tree}
	defer l.Close()
	st, err := l.stat(path)
	if err != nil {
		return unsure, Absence(err)
	}
	if st.BTime != (vfs.Timestamp{}) && vfs.ChangedBefore(since, st.BTime.Time()) {
		return "", nil
	}
	return unsure, nil
}

// dirReplaced returns why the present entries of a real directory may not be those of the base, or "" if they
// are. They may not be if the directory was created or moved there since.
func (b *LiveBase) dirReplaced(dir string) (why string, err error) {
	if dir == "." {
		return "", nil
	}
	if why, ok := b.replacedDirs[dir]; ok {
		return why, nil
	}
	if why, err = b.dirReplaced(filepath.Dir(dir)); err != nil {
		return "", err
	}
	st, err := b.Real.stat(dir)
	switch late := func(t vfs.Timestamp) bool { return !t.Time().Before(b.Since) }; {
	case why != "" || isAbsence(err):
	case err != nil:
		return "", err
	case b.isPromoted(dir, &st):
	case late(st.BTime) && st.BTime != (vfs.Timestamp{}):
		why = "its directory was replaced since the sandbox was made"
	case late(st.CTime) && !late(st.MTime):
		why = "its directory was moved or changed since the sandbox was made"
	}
	if b.replacedDirs == nil {
		b.replacedDirs = map[string]string{}
	}
	b.replacedDirs[dir] = why
	return why, nil
}
