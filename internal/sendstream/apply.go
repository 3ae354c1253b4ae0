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

// A How says what a stream is carried out on.
type How struct {
	// OnBase: on what it is the difference to. Otherwise on an empty directory.
	OnBase bool
	// Places are paths of directories and files that may be there though the stream knows
	// nothing of them, those above before what lies in them: they make way for what it
	// makes or moves there, and may be gone afterwards.
	Places []string
	// Unknown are those of Places that what the stream is the difference to knows nothing of:
	// where one went along with a directory, it is removed in the end. Stays is told of the others, which
	// are there still; may be nil.
	Unknown []string
	Stays   func(path string)
	// LeftOut is told of attributes that only root can set; may be nil.
	LeftOut func(path, attr string)
}

// Apply carries out a stream beneath the open directory root, which is as how says. It reads to the end of
// r, so that an error of who checks the whole comes out here.
//
// The stream may be anybody's, and this process root: no command leaves the
// directory or follows a symbolic link, in whatever order it makes and renames
// them, and nothing but regular files is opened. Nobody else may write in the
// directory meanwhile. An ordinary user becomes the owner of everything, the modes that a
// node has forbid nothing, and attributes that only root can set are left out.
//
// Cost: in proportion to the stream. After an error the directory holds any part
// of it: it is to be thrown away. Errors: ErrCorrupt (no stream, damaged or cut
// off, or none for this base), ErrNoSpace, ErrDenied, ErrNotSupported (something
// this filesystem cannot hold), ErrInterrupted, and those of r.
func Apply(ctx context.Context, root *os.File, r io.Reader, how How) error {
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
	defer a.letGo()
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
		err = bad("%d bytes follow its end", n)
	}
	return err
}

type applier struct {
	ctx    context.Context
	root   int
	uuid   []byte // what the stream calls the tree
	chowns bool
	// places make way: see How.
	places  []place
	leftOut func(path, attr string)
	// parts: to change a file of the base that has several names is to part them.
	parts bool
	// open is the file that was written to last, at path.
	open *os.File
	path string
	// rootTimes are what the stream or the base has said last, or nil. The kernel before 6.2
	// makes each node in the root first, by a name of its own, and moves it from there,
	// without a word on the root's times.
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
			return bad("it begins with %v, not with %v", c.op, first)
		case n > 0 && begins:
			return bad("a second tree in it")
		case begins:
			uuid, err := c.bytes(aUUID)
			if err != nil {
				return err
			}
			a.uuid = bytes.Clone(uuid)
		case c.op == End:
			if err := a.fetch(); err != nil {
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

// ended says that the context has.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &errs.Error{Op: "applying the stream", Kind: errs.ErrInterrupted, Err: err}
	}
	return nil
}

// applying says what a command that could not be carried out amounts to: what
// fits no tree that is there is no stream for it.
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

// carriers carry out the commands of each kind.
var carriers = map[Op]func(*applier, *command) error{
	MkFile: (*applier).mkfile, MkDir: (*applier).mkdir, MkNod: (*applier).mknod, MkFifo: (*applier).mkfifo, MkSock: (*applier).mksock,
	Symlink: (*applier).symlink, Rename: (*applier).rename, Link: (*applier).link, Unlink: (*applier).unlink, RmDir: (*applier).rmdir,
	SetXattr: (*applier).setXattr, RemoveXattr: (*applier).removeXattr, Write: (*applier).write, Clone: (*applier).clone,
	Truncate: (*applier).truncate, Chmod: (*applier).chmod, Chown: (*applier).chown, Utimes: (*applier).utimes,
}

func (a *applier) apply(c *command) error {
	do := carriers[c.op]
	if do == nil {
		return bad("it has %v, which this program does not know", c.op)
	}
	if c.op != Write && c.op != Clone {
		a.letGo()
	}
	if !a.chowns {
		plain := do
		do = func(a *applier, c *command) error {
			err := plain(a, c)
			if errors.Is(err, unix.EACCES) {
				err = a.lifting(c, plain)
			}
			return err
		}
	}
	err := do(a, c)
	if at, makes := made[c.op]; makes && len(a.places) > 0 && inTheWay(err) {
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

// A spot is a name in an open directory.
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

// checked is a path that names something beneath the root by plain names.
func checked(path string) (string, error) {
	if strings.IndexByte(path, 0) >= 0 {
		return "", bad("the path %q", path)
	}
	for name := range strings.SplitSeq(path, "/") {
		if name == "" || name == "." || name == ".." || len(name) > 255 {
			return "", bad("the path %q", path)
		}
	}
	return path, nil
}

// spot opens the directory of a path.
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

// node opens what a path names, without following it or waking it up; the root
// for the empty one.
func (a *applier) node(c *command) (int, error) {
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
		if err = a.whole(fd, ""); err != nil {
			unix.Close(fd)
		}
	}
	return fd, err
}

// whole refuses what would part the names of a file, and leave an old content at one.
func (a *applier) whole(dir int, name string) error {
	if !a.parts {
		return nil
	}
	st, err := vfs.Lstat(dir, name)
	if err != nil || st.IsDir() || st.Nlink < 2 {
		return err
	}
	return &errs.Error{
		Op: "applying the stream", Kind: errs.ErrNotSupported,
		Err: errors.New("it changes a file with several names, which an overlay would part: send all of it, without a base"),
	}
}

// regular opens a regular file: to open a device or a pipe is to use it.
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
		return nil, bad("%q is no regular file", path)
	}
	if err := a.whole(int(f.Fd()), ""); err != nil {
		return nil, err
	}
	return os.OpenFile(vfs.FDPath(f), os.O_RDWR, 0)
}

// file is the file to be written to; it stays open for the next command.
func (a *applier) file(c *command) (*os.File, error) {
	path, err := c.text(aPath)
	if err != nil {
		return nil, err
	}
	if a.open != nil && a.path == path {
		return a.open, nil
	}
	a.letGo()
	a.open, err = a.regular(path)
	a.path = path
	return a.open, err
}

func (a *applier) letGo() {
	if a.open != nil {
		a.open.Close()
		a.open = nil
	}
}

// time reads a moment: seconds and nanoseconds.
func (c *command) time(at attr) (unix.Timespec, error) {
	b, err := c.bytes(at)
	if err == nil && len(b) != 12 {
		err = bad("the attribute %d of %v is no time", at, c.op)
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
