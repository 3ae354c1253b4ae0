package sendstream

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Options describe the directory to which [Apply] applies a send stream (the changes that make one tree from
// another), and which of its entries are mount points.
type Options struct {
	// OnBase is set if the directory equals the base of the stream; otherwise the directory is
	// empty.
	OnBase bool
	// Places are the paths of directories and files, parents first, that may exist although the
	// stream does not have them (mount points). They are removed if the stream makes or moves
	// another entry there.
	Places []string
	// Unknown lists those of Places that the base of the stream does not have either. Such a
	// place is removed at the end if it moved together with a directory. Stays, which may be
	// nil, is called for those that still exist at their paths.
	Unknown []string
	Stays   func(path string)
	// LeftOut is called for attributes that only root can set; may be nil.
	LeftOut func(path, attr string)
}

// Apply makes the changes that a btrfs send stream describes to the open directory root. It reads r to its
// end, so that a reader that verifies the whole stream can return its error there.
//
// The stream may come from anybody, and this process may be root: no command leaves the directory or follows
// a symbolic link, in whatever order commands make and rename entries, and only regular files are opened. No
// other process may write in the directory meanwhile. An ordinary user becomes the owner of all files; modes
// set by the stream do not restrict later commands, and attributes that only root can set are left out.
//
// Cost: in proportion to the stream. After an error the directory contains an arbitrary part of the stream,
// and must be discarded. Errors: ErrCorrupt (no stream, damaged, truncated, or not for this base),
// ErrNoSpace, ErrDenied, ErrNotSupported (the filesystem cannot hold an entry), ErrInterrupted, and those of
// r.
func Apply(ctx context.Context, root *os.File, r io.Reader, how Options) error {
	in, err := newReader(r)
	if err != nil {
		return err
	}
	a := &applier{ctx: ctx, root: int(root.Fd()), chowns: os.Geteuid() == 0, places: placesOf(how), leftOut: how.LeftOut}
	if how.OnBase {
		fs, err := mount.FilesystemOf(vfs.FDPath(root))
		if err != nil {
			return err
		}
		a.parts = fs.Type == "overlay"
		st, err := vfs.Lstat(a.root, "")
		if err != nil {
			return err
		}
		a.rootTimes = &times{st.ATime, st.MTime}
	}
	defer a.closeOpen()
	if err := a.all(in, how.OnBase); err != nil {
		return err
	}
	for _, p := range a.places {
		if p.unknown && p.path == p.was && how.Stays != nil {
			how.Stays(p.was)
		}
	}
	n, err := io.Copy(io.Discard, r)
	if err == nil && n > 0 {
		err = bad("%d bytes follow the end of the stream", n)
	}
	return err
}

type applier struct {
	ctx    context.Context
	root   int
	uuid   []byte // the stream's UUID of the tree
	chowns bool
	// places are removed on demand: see Options.
	places  []place
	leftOut func(path, attr string)
	// parts is set if the tree is an overlay, in which a write to one of several hard links
	// makes it a file of its own.
	parts bool
	// open is the file that the last command wrote to, at path.
	open *os.File
	path string
	// rootTimes are the last times of the root that the stream or the base has set, or nil.
	// They are set again at the end: kernels before 6.2 make each inode in the root first and
	// rename it, without a command for the root's times.
	rootTimes *times
}

type times struct{ access, modified vfs.Timestamp }

func (a *applier) all(in *reader, onBase bool) error {
	var c command
	first := Subvol
	if onBase {
		first = Snapshot
	}
	for n := 0; ; n++ {
		if err := ended(a.ctx); err != nil {
			return err
		}
		if err := in.next(&c); err != nil {
			return err
		}
		switch begins := c.op == Subvol || c.op == Snapshot; {
		case n == 0 && c.op != first:
			return bad("the stream begins with %v, want %v", c.op, first)
		case n > 0 && begins:
			return bad("the stream has a second tree")
		case begins:
			uuid, err := c.bytes(aUUID)
			if err != nil {
				return err
			}
			a.uuid = bytes.Clone(uuid)
		case c.op == End:
			if err := a.removeMoved(); err != nil {
				return applying(&c, err)
			}
			if a.rootTimes == nil {
				return nil
			}
			if err := vfs.SetTimes(a.root, &a.rootTimes.access, a.rootTimes.modified); err != nil {
				return applying(&c, err)
			}
			return nil
		default:
			if err := a.apply(&c); err != nil {
				return applying(&c, err)
			}
		}
	}
}

// ended returns ErrInterrupted if the context has ended, so that [Apply] stops between two commands of a send
// stream, and nil otherwise.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &errs.Error{Op: "applying the stream", Kind: errs.ErrInterrupted, Err: err}
	}
	return nil
}

// applying wraps the error err of executing the command c of a send stream. If err shows that the command
// does not fit the tree, such as ENOENT, the result is ErrCorrupt.
func applying(c *command, err error) error {
	var done *errs.Error
	if errors.As(err, &done) {
		return err
	}
	kind := errs.KindOf(err)
	if kind == nil || errors.Is(kind, errs.ErrNotFound) || errors.Is(kind, errs.ErrExists) {
		kind = errs.ErrCorrupt
	}
	return &errs.Error{Op: "applying " + c.op.String(), Path: string(c.parts[aPath]), Kind: kind, Err: err}
}

// handlers holds, for each command of a send stream, the method of applier that executes it.
var handlers = map[Op]func(*applier, *command) error{
	MkFile: (*applier).mkfile, MkDir: (*applier).mkdir, MkNod: (*applier).mknod, MkFifo: (*applier).mkfifo, MkSock: (*applier).mksock,
	Symlink: (*applier).symlink, Rename: (*applier).rename, Link: (*applier).link, Unlink: (*applier).unlink, RmDir: (*applier).rmdir,
	SetXattr: (*applier).setXattr, RemoveXattr: (*applier).removeXattr, Write: (*applier).write, Clone: (*applier).clone,
	Truncate: (*applier).truncate, Chmod: (*applier).chmod, Chown: (*applier).chown, Utimes: (*applier).utimes,
}

func (a *applier) apply(c *command) error {
	do := handlers[c.op]
	if do == nil {
		return bad("unknown command %v", c.op)
	}
	if c.op != Write && c.op != Clone {
		a.closeOpen()
	}
	if !a.chowns {
		plain := do
		do = func(a *applier, c *command) error {
			err := plain(a, c)
			if errors.Is(err, unix.EACCES) {
				err = a.withPermissions(c, plain)
			}
			return err
		}
	}
	err := do(a, c)
	if at, makes := obstructable[c.op]; makes && len(a.places) > 0 && obstructed(err) {
		if moved, verr := a.vacate(string(c.parts[at]), c.op == RmDir); verr != nil || moved {
			if verr != nil {
				return verr
			}
			err = do(a, c)
		}
	}
	if err == nil && c.op == Rename {
		a.follow(string(c.parts[aPath]), string(c.parts[aPathTo]))
	}
	return err
}

// A spot is the place of a file that a command of a send stream makes or changes: its name, and the open
// directory that holds it. own is set if closing the spot closes the directory.
type spot struct {
	dir  int
	name string
	own  bool
}

func (s spot) close() {
	if s.own {
		unix.Close(s.dir)
	}
}

// checked returns path, which came in a send stream and is not trusted, unchanged if it is relative and has
// no "." or "..", so that it stays inside the tree. Otherwise it returns an error.
func checked(path string) (string, error) {
	if strings.IndexByte(path, 0) >= 0 {
		return "", bad("invalid path %q", path)
	}
	for name := range strings.SplitSeq(path, "/") {
		if name == "" || name == "." || name == ".." || len(name) > 255 {
			return "", bad("invalid path %q", path)
		}
	}
	return path, nil
}

// spot opens the parent directory of a path of the send stream's command c, the attribute at. The caller
// closes the spot.
func (a *applier) spot(c *command, at attr) (spot, error) {
	path, err := c.text(at)
	if err == nil {
		path, err = checked(path)
	}
	if err != nil {
		return spot{}, err
	}
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return spot{dir: a.root, name: path}, nil
	}
	fd, err := vfs.OpenBeneathFD(a.root, path[:i], vfs.OPath|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	return spot{dir: fd, name: path[i+1:], own: err == nil}, err
}

// openInode returns an O_PATH descriptor of the inode at the path of the send stream's command c, which the
// caller closes; the empty path is the root of the tree. It follows no symbolic link.
func (a *applier) openInode(c *command) (int, error) {
	path, err := c.text(aPath)
	if err != nil {
		return -1, err
	}
	if path == "" {
		return unix.Openat(a.root, ".", vfs.OPath|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if path, err = checked(path); err != nil {
		return -1, err
	}
	fd, err := vfs.OpenBeneathFD(a.root, path, vfs.OPath|unix.O_NOFOLLOW, 0)
	if err == nil && a.parts {
		if err = a.checkLinks(fd, ""); err != nil {
			unix.Close(fd)
		}
	}
	return fd, err
}

// checkLinks returns ErrNotSupported if the file that a stream changes has several hard links and the tree is
// an overlay. The change would copy up one link, and the other links would keep the old content.
func (a *applier) checkLinks(dir int, name string) error {
	if !a.parts {
		return nil
	}
	st, err := vfs.Lstat(dir, name)
	if err != nil || st.IsDir() || st.Nlink < 2 {
		return err
	}
	return &errs.Error{
		Op: "applying the stream", Kind: errs.ErrNotSupported,
		Err: errors.New("the stream changes a file with several hard links, which an overlay would separate: send the whole tree, without a base"),
	}
}

// regular opens the regular file at path in the tree to which a stream is applied, for reading and writing.
// It refuses other types, because opening a device or a pipe has effects.
func (a *applier) regular(path string) (*os.File, error) {
	path, err := checked(path)
	if err != nil {
		return nil, err
	}
	f, err := vfs.OpenBeneath(a.root, path, vfs.OPath|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := vfs.Lstat(int(f.Fd()), "")
	if err != nil {
		return nil, err
	}
	if !st.IsRegular() {
		return nil, bad("%q is not a regular file", path)
	}
	if err := a.checkLinks(int(f.Fd()), ""); err != nil {
		return nil, err
	}
	return os.OpenFile(vfs.FDPath(f), os.O_RDWR, 0)
}

// file opens the file to which the send stream's command c writes. The file stays open, because the next
// command usually writes to it too.
func (a *applier) file(c *command) (*os.File, error) {
	path, err := c.text(aPath)
	if err != nil {
		return nil, err
	}
	if a.open != nil && a.path == path {
		return a.open, nil
	}
	a.closeOpen()
	a.open, err = a.regular(path)
	a.path = path
	return a.open, err
}

func (a *applier) closeOpen() {
	if a.open != nil {
		a.open.Close()
		a.open = nil
	}
}

// time returns the time in the attribute at of a command of a send stream, which holds seconds and
// nanoseconds.
func (c *command) time(at attr) (unix.Timespec, error) {
	b, err := c.bytes(at)
	if err == nil && len(b) != 12 {
		err = bad("attribute %d of %v is no time", at, c.op)
	}
	if err != nil {
		return unix.Timespec{}, err
	}
	nsec := binary.LittleEndian.Uint32(b[8:])
	if nsec >= 1e9 {
		return unix.Timespec{}, bad("a time of %d ns in %v", nsec, c.op)
	}
	return unix.Timespec{Sec: int64(binary.LittleEndian.Uint64(b)), Nsec: int64(nsec)}, nil
}
