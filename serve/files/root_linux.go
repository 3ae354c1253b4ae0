package files

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
)

// A Root gives access to the files in one directory that this process can reach, with the operations of
// [Tree]; no path leads out of the directory. It is safe for concurrent use.
type Root struct {
	dir *os.File // O_PATH
}

// Open returns the Root of the directory dir, for reading and writing the files in it; the caller closes it.
// Linux only.
func Open(dir string) (*Root, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, failure("opening", dir, err)
	}
	return &Root{os.NewFile(uintptr(fd), dir)}, nil
}

// Close closes the descriptor of the Root's directory. Files that [Root.Read] has opened stay open.
func (r *Root) Close() error { return r.dir.Close() }

var _ Tree = (*Root)(nil)

// open opens the file at path inside the root directory, which no part of the path can leave. flags are those
// of open(2).
func (r *Root) open(path string, flags uint64) (*os.File, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(int(r.dir.Fd()), path, &how)
		if err == nil {
			return os.NewFile(uintptr(fd), path), nil
		}
		if err != unix.EAGAIN && err != unix.EINTR { // EAGAIN: something was renamed meanwhile
			return nil, err
		}
	}
}

// An entry is a file given by the open directory that holds it and its name there, so that a change of the
// path meanwhile leads nowhere else.
type entry struct {
	dir  *os.File
	name string
}

func (e entry) close() { e.dir.Close() }

func (e entry) fd() int { return int(e.dir.Fd()) }

// stat returns the attributes of the file that the entry names. It does not follow a symbolic link.
func (e entry) stat() (unix.Stat_t, error) {
	var st unix.Stat_t
	return st, unix.Fstatat(e.fd(), e.name, &st, unix.AT_SYMLINK_NOFOLLOW)
}

// entry opens the directory that holds the file at path, inside the root directory. The caller closes the
// entry. op is named in errors.
func (r *Root) entry(op, path string) (entry, error) {
	if err := check(op, path); err != nil {
		return entry{}, err
	}
	parent, name := split(path)
	if name == "" {
		return entry{}, errs.New(op, path, errs.ErrInvalid, "the path must end in a name")
	}
	dir, err := r.open(parent, unix.O_PATH|unix.O_DIRECTORY)
	return entry{dir, name}, failure(op, path, err)
}

// maxLinks is how many symbolic links in a row [Root.target] follows before it returns an error; the kernel
// has the same limit.
const maxLinks = 40

// target opens the directory that holds the file at path, as [Root.entry] does. If the file is a symbolic
// link, it follows the link inside the root directory.
func (r *Root) target(op, path string) (entry, error) {
	at := path
	for range maxLinks {
		e, err := r.entry(op, at)
		if err != nil {
			return e, err
		}
		st, err := e.stat()
		if err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
			return e, nil //nolint:nilerr // what does not exist can be made
		}
		text, err := linkText(e)
		e.close()
		if err != nil {
			return e, failure(op, path, err)
		}
		if text[0] != '/' {
			parent, _ := split(at)
			text = parent + "/" + text
		}
		at = text
	}
	return entry{}, failure(op, path, unix.ELOOP)
}

func linkText(e entry) (string, error) {
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(e.fd(), e.name, buf)
	if err == nil && n == 0 {
		err = unix.ENOENT
	}
	return string(buf[:max(n, 0)]), err
}

// Stat describes the file at path inside the root directory; with follow, the target of a symbolic link. See
// [Tree].
func (r *Root) Stat(path string, follow bool) (Info, error) {
	const op = "describing"
	if err := check(op, path); err != nil {
		return Info{}, err
	}
	if _, name := split(path); name == "" || follow {
		f, err := r.open(path, unix.O_PATH)
		if err != nil {
			return Info{}, failure(op, path, err)
		}
		defer f.Close()
		info, err := infoOf(f, cmp.Or(name, "."))
		return info, failure(op, path, err)
	}
	e, err := r.entry(op, path)
	if err != nil {
		return Info{}, err
	}
	defer e.close()
	info, err := e.info()
	return info, failure(op, path, err)
}

func infoOf(f *os.File, name string) (Info, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Info{}, err
	}
	return info(name, &st), nil
}

func (e entry) info() (Info, error) {
	st, err := e.stat()
	if err != nil {
		return Info{}, err
	}
	i := info(e.name, &st)
	if i.Type == Symlink {
		i.Target, err = linkText(e)
	}
	return i, err
}

func info(name string, st *unix.Stat_t) Info {
	types := map[uint32]fs.FileMode{
		unix.S_IFREG: 0, unix.S_IFDIR: fs.ModeDir, unix.S_IFLNK: fs.ModeSymlink, unix.S_IFIFO: fs.ModeNamedPipe, unix.S_IFSOCK: fs.ModeSocket,
	}
	mode, known := types[st.Mode&unix.S_IFMT]
	if !known {
		mode = fs.ModeDevice
	}
	i := Info{
		Type: typeOf(mode), Size: st.Size, Mode: fmt.Sprintf("%04o", st.Mode&0o7777), UID: st.Uid, GID: st.Gid,
		Modified: time.Unix(st.Mtim.Unix()).UTC(),
	}
	i.setName(name)
	return i
}

// List describes the entries of the directory at path, sorted by name; more reports whether there are further
// ones. See [Tree].
func (r *Root) List(path string, o ListOptions) (entries []Info, more bool, err error) {
	const op = "listing"
	if err := check(op, path); err != nil {
		return nil, false, err
	}
	dir, err := r.open(path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, false, failure(op, path, err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, false, failure(op, path, err)
	}
	slices.Sort(names)
	from, found := slices.BinarySearch(names, o.After)
	if found {
		from++
	}
	most := o.Limit
	if most <= 0 || most > maxList {
		most = maxList
	}
	entries = []Info{}
	for _, name := range names[from:] {
		if len(entries) == most {
			return entries, true, nil
		}
		i, err := entry{dir, name}.info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, false, failure(op, path, err)
		}
		entries = append(entries, i)
	}
	return entries, false, nil
}

// Read opens the regular file at path inside the root directory for reading from the offset on. See [Tree].
func (r *Root) Read(path string, offset int64) (io.ReadCloser, Info, error) {
	const op = "reading"
	if err := check(op, path); err != nil {
		return nil, Info{}, err
	}
	if offset < 0 {
		return nil, Info{}, errs.New(op, path, errs.ErrInvalid, "the offset is negative")
	}
	at, err := r.open(path, unix.O_PATH)
	if err != nil {
		return nil, Info{}, failure(op, path, err)
	}
	defer at.Close()
	_, name := split(path)
	i, err := infoOf(at, cmp.Or(name, "."))
	if err != nil {
		return nil, Info{}, failure(op, path, err)
	}
	if i.Type != File {
		return nil, Info{}, errs.New(op, path, errs.ErrInvalid, "it is no regular file but a "+i.Type)
	}
	// Only now: to open a pipe or a device may block or act.
	f, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(at.Fd())))
	if err == nil && offset > 0 {
		if _, err = f.Seek(offset, io.SeekStart); err != nil {
			f.Close()
		}
	}
	if err != nil {
		return nil, Info{}, failure(op, path, err)
	}
	return f, i, nil
}
