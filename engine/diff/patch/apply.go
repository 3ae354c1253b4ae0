package patch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/kernel"
	"github.com/snapfs/snapfs/internal/undo"
)

// Apply makes the tree beneath the open directory dir what the new one was, of one
// that is what the old one was, by a patch that [Write] has written. It carries
// everything: all types, content of any size and its holes, modes, owners,
// times, attributes, hard links, names of any bytes.
//
// It is strict. Each path that the patch changes must be what it was on the old
// side, but for times: type, mode, owner, attributes, target, device, and the content
// where that is replaced or deleted. A directory that goes must hold nothing else.
// Then all new content is built, and compared with what the patch says that it is, in
// a directory ".snapfs-apply-…" in dir. Only then is it moved into place. An error,
// at any time, leaves the tree as it was, or says what could not be taken back.
// A crash half-way can leave it between the two, with what was replaced in that
// directory: promote is for trees that must survive one.
//
// No symbolic link is followed, and nothing outside dir is touched: a file that
// has another name out there is replaced, not written to. What ordinary users may
// not make (devices, other owners, some attributes), they cannot apply.
//
// Cost: reads the patch twice, and the old files that change once or twice. A
// file that only moved is cloned where the filesystem can. Memory: the records, and a
// text of TextMax.
// Errors: *snapshot.Error; ErrDrifted with the first path that is not as
// expected, ErrNotSupported for a patch that Write has not written,
// ErrCorrupt for one that is damaged, ErrDenied, ErrNoSpace, ErrInterrupted.
func Apply(ctx context.Context, dir *os.File, r io.Reader) (err error) {
	text, size, done, err := spool(ctx, r)
	if err != nil {
		return failed("", err)
	}
	defer done()
	s, err := read(ctx, text, size)
	if err != nil {
		return failed("", err)
	}
	root, err := os.Open(kernel.FDPath(dir)) // dir may be O_PATH
	if err != nil {
		return failed("", err)
	}
	defer root.Close()
	a := applier{ctx: ctx, script: s, root: int(root.Fd()), times: map[string]kernel.Timestamp{}}
	if err := a.verify(); err != nil {
		return err
	}
	return a.carryOut()
}

// An applier carries out one patch.
type applier struct {
	*script
	ctx  context.Context
	root int
	// times are those of directories that are touched and were there before.
	times   map[string]kernel.Timestamp
	stage   *os.File
	name    string // of the stage
	back    undo.Stack
	deleted map[string]bool
	made    map[string]bool // directories that come, or take the place of something
	seen    map[string]glimpse
}

func failed(path string, err error) error {
	var done *snapshot.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	kind := snapshot.KindOf(err)
	switch {
	case kind != nil:
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EISDIR):
		kind = snapshot.ErrDrifted
	case errors.Is(err, unix.EXDEV): // something is mounted in the tree
		kind = snapshot.ErrNotSupported
	default:
		kind = snapshot.ErrCorrupt
	}
	return &snapshot.Error{Op: "applying the patch", Path: path, Kind: kind, Err: err}
}

// unlike says how a path is not as the patch expects it.
func unlike(path raw, why string, args ...any) error {
	return &snapshot.Error{Op: "applying the patch", Path: string(path), Kind: snapshot.ErrDrifted, Err: fmt.Errorf(why, args...)}
}

// parent opens the directory that holds a path.
func (a *applier) parent(path raw) (dir *os.File, name string, err error) {
	at, name := parentOf(string(path)), string(path)
	if at != "." {
		name = name[len(at)+1:]
	}
	dir, err = kernel.OpenBeneath(a.root, at, openPath, 0)
	return dir, name, err
}

// open opens what is at a path, whatever it is.
func (a *applier) open(path raw, flags int) (*os.File, error) {
	return kernel.OpenBeneath(a.root, string(path), flags|unix.O_NOFOLLOW, 0)
}

// verify compares every path with what the patch expects.
func (a *applier) verify() error {
	a.deleted, a.made, a.seen = map[string]bool{}, map[string]bool{}, map[string]glimpse{}
	for i := range a.records {
		r := &a.records[i]
		a.deleted[string(r.Path)] = r.Old != nil && r.New == nil
		a.made[string(r.Path)] = r.New.is(typeDir) && !r.Old.is(typeDir)
	}
	for i := range a.records {
		if err := a.ctx.Err(); err != nil {
			return failed(string(a.records[i].Path), err)
		}
		if err := a.verifyRecord(&a.records[i]); err != nil {
			return failed(string(a.records[i].Path), err)
		}
	}
	return nil
}

func (a *applier) verifyRecord(r *record) error {
	parent := parentOf(string(r.Path))
	if a.made[parent] { // nothing can be there yet, but what goes
		if r.Old != nil && r.New != nil {
			return unlike(r.Path, "the patch contradicts itself")
		}
	}
	if err := a.remember(r); err != nil {
		return err
	}
	f, err := a.open(r.Path, kernel.OPath)
	switch {
	case r.Old != nil && errors.Is(err, unix.ENOENT):
		return unlike(r.Path, "it is not there")
	case r.Old == nil && r.New != nil:
		return a.verifyAbsent(r, f, err)
	case err != nil:
		return err
	}
	defer f.Close()
	if r.Old == nil { // its time alone
		if _, dir := a.times[string(r.Path)]; !dir {
			return unlike(r.Path, "it is no directory")
		}
		return nil
	}
	if err := a.compare(r, f); err != nil {
		return err
	}
	if !r.Old.is(typeDir) || r.New.is(typeDir) {
		return nil
	}
	return a.verifyEmptied(r)
}

// verifyAbsent makes sure that there is room for what comes.
func (a *applier) verifyAbsent(r *record, f *os.File, err error) error {
	if err == nil {
		f.Close()
		return unlike(r.Path, "something is there already")
	}
	if a.made[parentOf(string(r.Path))] && (errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)) {
		return nil
	}
	if !errors.Is(err, unix.ENOENT) {
		return err
	}
	if r.New.ID == "" || r.New.LinkOf == "" {
		return nil
	}
	return a.verifyContent(r.New.LinkOf, r.New.ID)
}

// remember keeps the times of what will be touched.
func (a *applier) remember(r *record) error {
	for _, dir := range []string{parentOf(string(r.Path)), string(r.Path)} {
		if _, known := a.times[dir]; known || a.made[dir] {
			continue
		}
		f, err := kernel.OpenBeneath(a.root, dir, openPath|unix.O_NOFOLLOW, 0)
		if err != nil {
			if dir == string(r.Path) {
				continue
			}
			if !a.made[parentOf(dir)] {
				return unlike(raw(dir), "it is no directory")
			}
			continue
		}
		st, err := kernel.Lstat(int(f.Fd()), "")
		f.Close()
		if err != nil {
			return err
		}
		a.times[dir] = st.MTime
	}
	return nil
}

// compare compares a node with what the patch expects.
func (a *applier) compare(r *record, f *os.File) error {
	st, err := kernel.Lstat(int(f.Fd()), "")
	if err != nil {
		return err
	}
	a.seen[string(r.Path)] = glimpseOf(&st)
	is, err := factsAt(f)
	if err != nil {
		return err
	}
	was := r.Old
	for _, d := range []struct {
		differs bool
		what    string
		is, was any
	}{
		{is.Mode&typeMask != was.Mode&typeMask, "type", is.Mode & typeMask, was.Mode & typeMask},
		{is.Mode != was.Mode, "mode", is.Mode & 0o7777, was.Mode & 0o7777},
		{is.UID != was.UID || is.GID != was.GID, "owner", fmt.Sprint(is.UID, ":", is.GID), fmt.Sprint(was.UID, ":", was.GID)},
		{is.Target != was.Target, "target", fmt.Sprintf("%q", string(is.Target)), fmt.Sprintf("%q", string(was.Target))},
		{is.Rdev != was.Rdev, "device", is.Rdev, was.Rdev},
	} {
		if d.differs {
			return unlike(r.Path, "its %s is %v, and the patch expects %v", d.what, d.is, d.was)
		}
	}
	if !sameXattrs(is.Xattrs, was.Xattrs) {
		return unlike(r.Path, "its extended attributes are others than the patch expects")
	}
	if was.ID != "" {
		if is.Size != was.Size {
			return unlike(r.Path, "it has %d bytes, and the patch expects %d", is.Size, was.Size)
		}
		if err := a.verifyContent(r.Path, was.ID); err != nil {
			return err
		}
	}
	if r.New != nil && r.New.ID != "" && r.New.LinkOf != "" {
		return a.verifyContent(r.New.LinkOf, r.New.ID)
	}
	return nil
}

func (a *applier) verifyContent(path raw, want string) error {
	f, err := a.openFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if id, err := contentID(a.ctx, f, want); err != nil || id != want {
		if err != nil {
			return err
		}
		return unlike(path, "its content is another than the patch expects")
	}
	return nil
}

func (a *applier) openFile(path raw) (*os.File, error) {
	f, err := a.open(path, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(unlike(path, "it is no file"), err, f.Close())
	}
	return f, nil
}

// verifyEmptied makes sure that everything in a directory that goes, goes.
func (a *applier) verifyEmptied(r *record) error {
	f, err := a.open(r.Path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer f.Close()
	return kernel.EachEntry(int(f.Fd()), func(name []byte, _ uint64, _ uint8) error {
		path := string(r.Path) + "/" + string(name)
		if !a.deleted[path] {
			return unlike(raw(path), "it is in a directory that the patch deletes, and the patch does not know it")
		}
		return nil
	})
}

func sameXattrs(a, b []attr) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Name != b[i].Name || string(a[i].Value) != string(b[i].Value) {
			return false
		}
	}
	return true
}

// factsAt describes an open node, which may be O_PATH. Attributes that overlayfs
// keeps for itself are none.
func factsAt(f *os.File) (*facts, error) {
	st, err := kernel.Lstat(int(f.Fd()), "")
	if err != nil {
		return nil, err
	}
	x, err := kernel.Xattrs(int(f.Fd()), "")
	if err != nil {
		return nil, err
	}
	n := diff.Node{Mode: st.FileMode(), UID: st.UID, GID: st.GID, Size: st.Size, MTime: st.MTime.Time(), NLink: st.Nlink}
	if st.Mode&unix.S_IFMT == unix.S_IFCHR || st.Mode&unix.S_IFMT == unix.S_IFBLK {
		n.Rdev = st.Rdev
	}
	if st.IsSymlink() {
		buf := make([]byte, unix.PathMax)
		size, err := kernel.Readlink(int(f.Fd()), "", buf)
		if err != nil {
			return nil, err
		}
		n.Target = string(buf[:size])
	}
	for name := range x {
		if kernel.OverlayXattr(name) {
			delete(x, name)
		}
	}
	n.Xattrs = x
	return factsOf(&n), nil
}
