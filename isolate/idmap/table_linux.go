package idmap

import (
	"errors"
	"os"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A table holds those inodes of the served directory that the kernel knows and may refer to by id.
type table struct {
	root *os.File // for handles; open for reading
	// handles is set if the filesystem can open inodes by file handle.
	handles bool
	gate    *gate // of a [View], or nil

	mu     sync.Mutex
	next   uint64
	inodes map[uint64]*inode
	byKey  map[string]*inode
}

// An inode is a file of any type that the kernel knows. The server opens it by its file handle, or by a
// descriptor (O_PATH) if the filesystem has no handles or the last name may be gone.
type inode struct {
	id      uint64
	key     string
	handle  *unix.FileHandle
	fd      int // -1 if reached by handle
	kind    uint32
	checked string // the name that a [Checker] checks, or ""
	lookups uint64
}

func newTable(tree *os.File) (*table, error) {
	t := &table{next: fuse.FUSE_ROOT_ID + 1}
	return t, t.reset(tree)
}

// reset makes the directory tree the root of the table of inodes, and forgets every other inode. A view then
// shows that directory.
func (t *table) reset(tree *os.File) error {
	fd, err := unix.Openat(int(tree.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	root := os.NewFile(uintptr(fd), tree.Name())
	at, err := openPath(fd, ".")
	if err != nil {
		return errors.Join(err, root.Close())
	}
	t.mu.Lock()
	t.root, t.inodes, t.byKey, t.handles = root, map[uint64]*inode{}, map[string]*inode{}, opensByHandle(fd, at)
	t.mu.Unlock()
	n, _, err := t.adopt(at, "")
	if err != nil {
		return errors.Join(err, root.Close())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.inodes, n.id)
	n.id = fuse.FUSE_ROOT_ID
	t.inodes[n.id] = n
	return nil
}

// clear closes every descriptor of the table of inodes, so that the filesystem of the served directory can be
// unmounted. Until the next reset no inode is known.
func (t *table) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.inodes {
		if n.fd >= 0 {
			unix.Close(n.fd)
		}
	}
	t.inodes, t.byKey = map[uint64]*inode{}, map[string]*inode{}
	t.root.Close()
}

// opensByHandle reports whether the filesystem of root can open the inode behind the descriptor at by a file
// handle (open_by_handle_at(2)).
func opensByHandle(root, at int) bool {
	h, _, err := unix.NameToHandleAt(at, "", unix.AT_EMPTY_PATH)
	if err != nil {
		return false
	}
	fd, err := unix.OpenByHandleAt(root, h, unix.O_PATH|unix.O_CLOEXEC)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

// openPath opens the entry name of the directory dir with O_PATH, whatever its type. The caller closes the
// descriptor.
func openPath(dir int, name string) (int, error) {
	return unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// identify returns the key by which the table finds the inode behind the descriptor fd, and its file handle
// if the filesystem has handles.
func (t *table) identify(fd int) (key string, h *unix.FileHandle, err error) {
	if t.handles {
		handle, _, err := unix.NameToHandleAt(fd, "", unix.AT_EMPTY_PATH)
		return binaryKey(uint64(handle.Type())) + string(handle.Bytes()), &handle, err
	}
	st, err := vfs.Lstat(fd, "")
	return "i" + binaryKey(st.Dev) + binaryKey(st.Ino), nil, err
}

func binaryKey(n uint64) string {
	b := make([]byte, 8)
	for i := range b {
		b[i] = byte(n >> (8 * i))
	}
	return string(b)
}

// adopt returns the inode behind fd with its attributes, and counts one more kernel reference of it. checked
// is the name that a [Checker] checks, or "": a file under such a name is another inode than the same file
// under other names. adopt owns fd from then on, also after an error.
func (t *table) adopt(fd int, checked string) (*inode, vfs.Stat, error) {
	st, err := vfs.Lstat(fd, "")
	if err != nil {
		unix.Close(fd)
		return nil, st, err
	}
	key, h, err := t.identify(fd)
	if err != nil {
		unix.Close(fd)
		return nil, st, err
	}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFREG && kind != unix.S_IFLNK {
		checked = ""
	}
	if checked != "" {
		key = "checked\x00" + checked + "\x00" + key
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.byKey[key]
	if n == nil {
		n = &inode{id: t.next, key: key, handle: h, fd: -1, kind: kind, checked: checked}
		t.next++
		t.inodes[n.id], t.byKey[key] = n, n
		if h == nil || checked != "" { // a descriptor keeps its path, which a handle has not
			n.fd, fd = fd, -1
		}
	}
	n.lookups++
	if fd >= 0 {
		unix.Close(fd)
	}
	return n, st, nil
}

// pin opens the inode called name in the directory dir, which is about to be removed, and keeps it open.
// Processes that use the inode still reach it then.
func (t *table) pin(dir int, name string) {
	fd, err := openPath(dir, name)
	if err != nil {
		return // then nothing is removed
	}
	key, _, err := t.identify(fd) // a checked inode is open anyway
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.byKey[key]; err == nil && n != nil && n.fd < 0 {
		n.fd = fd
		return
	}
	unix.Close(fd)
}

// forget subtracts times from the count of kernel references to the inode id. At zero the table drops the
// inode.
func (t *table) forget(id, times uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.inodes[id]
	if n == nil || id == fuse.FUSE_ROOT_ID {
		return
	}
	if n.lookups -= min(times, n.lookups); n.lookups > 0 {
		return
	}
	delete(t.inodes, id)
	if t.byKey[n.key] == n {
		delete(t.byKey, n.key)
	}
	if n.fd >= 0 {
		unix.Close(n.fd)
	}
}

// with calls do with the inode id of the table and an O_PATH descriptor of it, which is valid until do
// returns. ESTALE: the inode is gone.
func (t *table) with(id uint64, do func(n *inode, fd int) error) error {
	if t.gate != nil {
		t.gate.enter()
		defer t.gate.leave()
	}
	t.mu.Lock()
	n := t.inodes[id]
	if n == nil {
		t.mu.Unlock()
		return unix.ESTALE
	}
	fd := n.fd
	t.mu.Unlock()
	if fd >= 0 { // stays open for as long as the kernel knows the inode
		return do(n, fd)
	}
	fd, err := unix.OpenByHandleAt(int(t.root.Fd()), *n.handle, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC)
	if err != nil {
		if errors.Is(err, unix.ENOENT) {
			err = unix.ESTALE
		}
		return err
	}
	defer unix.Close(fd)
	return do(n, fd)
}

// reopen opens the file behind the O_PATH descriptor fd, which itself cannot read or write, with flags. The
// caller closes the new descriptor.
func reopen(fd, flags int) (int, error) {
	return unix.Open(procPath(fd), flags|unix.O_CLOEXEC, 0)
}
