package watch

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A Tree reports changes in a directory tree by any process: added and removed names, written files, changed
// attributes. It misses writes through a memory mapping, and files of other mounts inside the tree.
//
// For root it sets one mark on the whole filesystem (fanotify(7), Linux 5.9) if the filesystem's type
// supports that: not an overlay, FUSE, or a subvolume of btrfs. Otherwise it sets a watch on each directory
// (inotify(7)).
type Tree struct {
	file  *os.File // of the events
	dir   string
	skip  func(path string) bool
	kind  string
	most  int
	mount uint64

	// mu guards fd: with fanotify a descriptor of the directory, with inotify that of the
	// event queue; -1 after Close.
	mu sync.Mutex
	fd int

	group   int                   // fanotify: the descriptor of file, open as long as fd is
	handles map[string]*directory // fanotify: what is known of a directory, by its handle
	paths   map[int32]string      // inotify: the directory of a watch
}

// A directory is what is known of a directory of the watched filesystem in which something has happened.
type directory struct {
	// holds is set if the directory lies in the watched tree, and above if the tree lies in the directory.
	holds, above bool
	// events counts the events in it while it is neither ignored nor in the tree.
	events int
}

// ErrManyDirectories means that the watched tree has more directories than the caller or this user's inotify
// limits allow.
var ErrManyDirectories = errors.New("too many directories to watch")

// New watches the absolute directory dir with all directories in it on its mount, except those
// for which skip returns true. most bounds the number of watches. Cost: two system calls with
// fanotify, otherwise a walk of the tree. Errors: *os.PathError; [ErrManyDirectories], by most
// or by this user's limits (/proc/sys/fs/inotify).
func New(dir string, skip func(path string) bool, most int) (*Tree, error) {
	st, err := vfs.Lstat(unix.AT_FDCWD, dir)
	if err != nil {
		return nil, err
	}
	w := &Tree{dir: dir, skip: skip, most: most, mount: st.Mount}
	if w.mark() {
		return w, nil
	}
	if err := w.listen(); err != nil {
		return nil, err
	}
	return w, nil
}

// Dir watches the absolute directory dir, which has no directories in it, with one watch of
// inotify(7). Cost: two system calls. Errors: *os.PathError; [ErrManyDirectories].
func Dir(dir string) (*Tree, error) {
	w := &Tree{dir: dir, skip: func(string) bool { return false }, most: 1}
	st, err := vfs.Lstat(unix.AT_FDCWD, dir)
	if err != nil {
		return nil, err
	}
	w.mount = st.Mount
	if err := w.listen(); err != nil {
		return nil, err
	}
	return w, nil
}

// listen opens a queue of inotify events and adds watches for all directories of the watched tree. After an
// error the Tree is closed.
func (w *Tree) listen() error {
	w.kind, w.paths = "inotify", map[int32]string{}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err == unix.EMFILE {
		return ErrManyDirectories
	}
	if err != nil {
		return &os.PathError{Op: "inotify_init", Path: w.dir, Err: err}
	}
	w.file, w.fd = os.NewFile(uintptr(fd), "inotify"), fd
	if err := w.add(w.dir); err != nil {
		w.Close()
		return err
	}
	return nil
}

// Close ends the watch of the directory tree. A waiting Next returns fs.ErrClosed.
func (w *Tree) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kind == "fanotify" && w.fd >= 0 {
		unix.Close(w.fd)
	}
	w.fd = -1
	w.file.Close()
}

// Next waits for a change in the tree. It may return without one, and several changes may
// count as one. Errors: fs.ErrClosed after Close; [ErrManyDirectories] if the tree has grown
// beyond the limits.
func (w *Tree) Next() error {
	buf := make([]byte, 16<<10)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return err
		}
		var changed bool
		if w.kind == "inotify" {
			changed, err = w.inotified(buf[:n])
		} else {
			changed = w.fanotified(buf[:n])
		}
		if changed || err != nil {
			return err
		}
	}
}

const fanEvents = unix.FAN_CREATE | unix.FAN_DELETE | unix.FAN_MOVED_FROM | unix.FAN_MOVED_TO | unix.FAN_MODIFY | unix.FAN_ATTRIB

// mark puts a fanotify mark on the whole filesystem of the watched tree, so that one mark reports all
// changes. It returns false if that failed. Only root may do that.
func (w *Tree) mark() bool {
	if os.Geteuid() != 0 {
		return false
	}
	const flags = unix.FAN_CLASS_NOTIF | unix.FAN_CLOEXEC | unix.FAN_NONBLOCK | unix.FAN_REPORT_DFID_NAME
	fd, err := unix.FanotifyInit(flags, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return false
	}
	err = unix.FanotifyMark(fd, unix.FAN_MARK_ADD|unix.FAN_MARK_FILESYSTEM, fanEvents|unix.FAN_ONDIR, unix.AT_FDCWD, w.dir)
	if err == nil {
		w.fd, err = unix.Open(w.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		unix.Close(fd)
		return false
	}
	w.kind, w.group, w.handles = "fanotify", fd, map[string]*directory{}
	w.file = os.NewFile(uintptr(fd), "fanotify")
	return true
}

// fanotified reads fanotify events from buf, each with the handle of a directory (struct
// fanotify_event_info_fid), and reports whether one of these directories lies in the tree.
func (w *Tree) fanotified(buf []byte) (changed bool) {
	const head, info, named, unnamed = 24, 4 + 8, 2, 3 // FAN_EVENT_INFO_TYPE_DFID_NAME, _DFID
	for len(buf) >= head {
		size := int(binary.NativeEndian.Uint32(buf))
		if size < head || size > len(buf) {
			return true
		}
		mask := binary.NativeEndian.Uint64(buf[8:])
		event := buf[head:size]
		buf = buf[size:]
		if mask&unix.FAN_Q_OVERFLOW != 0 {
			changed = true
			w.forget() // events of moved directories may be lost
			continue
		}
		var in *directory
		if len(event) >= info+8 && (event[0] == named || event[0] == unnamed) {
			in = w.at(event[info:])
		}
		changed = changed || in != nil && in.holds
		// A directory that is moved from one place outside the tree to another carries nothing into the tree or out of
		// it, unless the tree itself lies in the directory.
		if mask&unix.FAN_ONDIR != 0 && mask&(unix.FAN_MOVED_FROM|unix.FAN_MOVED_TO) != 0 && in != nil && (in.holds || in.above) {
			w.forget()
		}
	}
	return changed
}

// ignoreAfter is the number of events in a directory outside the tree after which the kernel ignores the directory. To
// begin that takes the kernel longer than many events, because it visits each file of the directory that it has in
// memory.
const ignoreAfter = 32

// at returns what is known of the directory of a file handle, from a fanotify event. For a deleted directory it returns
// nil, because its parent gets an event of its own.
func (w *Tree) at(handle []byte) *directory {
	size := int(binary.NativeEndian.Uint32(handle))
	if size < 0 || len(handle) < 8+size {
		return &directory{holds: true}
	}
	d := w.handles[string(handle[4:8+size])]
	if d != nil && d.holds {
		return d
	}
	if d != nil {
		if d.events++; d.events != ignoreAfter {
			return d
		}
	}
	kind := int32(binary.NativeEndian.Uint32(handle[4:]))
	w.mu.Lock()
	fd, err := unix.OpenByHandleAt(w.fd, unix.NewFileHandle(kind, handle[8:8+size]), unix.O_PATH|unix.O_CLOEXEC)
	w.mu.Unlock()
	if errors.Is(err, unix.ESTALE) {
		return nil
	}
	if err != nil { // unknown, or w is closed
		return &directory{above: true}
	}
	defer unix.Close(fd)
	link := "/proc/self/fd/" + strconv.Itoa(fd)
	if d != nil {
		w.ignore(link)
		return d
	}
	path, err := os.Readlink(link)
	if err != nil {
		return &directory{above: true}
	}
	d = &directory{holds: within(path, w.dir) && !w.skips(path), above: path != w.dir && within(w.dir, path), events: 1}
	if len(w.handles) >= w.most {
		w.forget()
	}
	w.handles[string(handle[4:8+size])] = d
	return d
}

// within reports whether path is the directory dir or lies in it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// ignore has the kernel report no more events of files in a directory outside the watched tree, so that a busy file
// elsewhere in the filesystem does not wake this process. link leads to the directory. The kernel still reports all
// events of directories in it, such as a move into the tree. Kernels before Linux 6.0 report everything.
func (w *Tree) ignore(link string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd < 0 {
		return // closed
	}
	const flags = unix.FAN_MARK_ADD | unix.FAN_MARK_IGNORE_SURV | unix.FAN_MARK_EVICTABLE // the last: pins no inode in memory
	_ = unix.FanotifyMark(w.group, flags, fanEvents|unix.FAN_EVENT_ON_CHILD, unix.AT_FDCWD, link)
}

// forget drops all that is known of directories in the watched filesystem, when one may have been moved into the tree
// or out of it. It ends the effect of ignore before Next returns, so no change in the tree is missed: the caller looks
// at the tree afterwards.
func (w *Tree) forget() {
	clear(w.handles)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd >= 0 {
		_ = unix.FanotifyMark(w.group, unix.FAN_MARK_FLUSH, 0, unix.AT_FDCWD, ".") // of directories: the filesystem's mark stays
	}
}

// skips reports whether the caller's skip function excludes a directory of the watched tree or one of its
// parents there.
func (w *Tree) skips(path string) bool {
	for ; len(path) > len(w.dir); path = filepath.Dir(path) {
		if w.skip(path) {
			return true
		}
	}
	return false
}

const inEvents = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_MODIFY | unix.IN_ATTRIB |
	unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW | unix.IN_EXCL_UNLINK

// add puts inotify watches on the directory path and all directories in it. It leaves out deleted ones, and
// those that this user cannot read. A moved directory keeps its watches; calling add for it again gives them
// the new path.
func (w *Tree) add(path string) error {
	if path != w.dir && w.skip(path) {
		return nil
	}
	st, err := vfs.Lstat(unix.AT_FDCWD, path)
	if err != nil || !st.IsDir() || st.Mount != w.mount {
		return nil //nolint:nilerr // it is gone
	}
	if len(w.paths) >= w.most {
		return ErrManyDirectories
	}
	w.mu.Lock()
	wd, err := unix.InotifyAddWatch(w.fd, path, inEvents)
	w.mu.Unlock()
	switch {
	case err == unix.ENOSPC || err == unix.ENOMEM:
		return ErrManyDirectories
	case err != nil:
		return nil //nolint:nilerr // as above
	}
	w.paths[int32(wd)] = path
	dir, err := vfs.OpenDir(unix.AT_FDCWD, path)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	var sub []string
	err = vfs.EachEntry(int(dir.Fd()), func(name []byte, _ uint64, typ uint8) error {
		if typ == unix.DT_DIR || typ == unix.DT_UNKNOWN {
			sub = append(sub, filepath.Join(path, string(name)))
		}
		return nil
	})
	dir.Close()
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	for _, s := range sub {
		if err := w.add(s); err != nil {
			return err
		}
	}
	return nil
}

// inotified parses the inotify events in buf, and reports whether one of them is a change in the watched
// tree. It also adds watches for new directories.
func (w *Tree) inotified(buf []byte) (changed bool, err error) {
	const head = 16
	for len(buf) >= head {
		wd := int32(binary.NativeEndian.Uint32(buf))
		mask := binary.NativeEndian.Uint32(buf[4:])
		size := head + int(binary.NativeEndian.Uint32(buf[12:]))
		if size > len(buf) {
			return true, nil
		}
		name := strings.TrimRight(string(buf[head:size]), "\x00")
		buf = buf[size:]
		path, ours := w.paths[wd]
		switch {
		case mask&unix.IN_IGNORED != 0:
			delete(w.paths, wd)
			continue
		case mask&unix.IN_Q_OVERFLOW != 0:
			if err := w.add(w.dir); err != nil { // directories may have been missed
				return true, err
			}
		case !ours || name != "" && w.skip(filepath.Join(path, name)):
			continue
		case mask&unix.IN_ISDIR != 0 && mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
			if err := w.add(filepath.Join(path, name)); err != nil {
				return true, err
			}
		}
		changed = true
	}
	return changed, nil
}
