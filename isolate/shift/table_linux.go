package shift

import (
	"errors"
	"os"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A table holds the nodes that the kernel knows.
type table struct {
	root *os.File // for handles, open for reading
	// handles: the filesystem has file handles, by which it opens too.
	handles bool

	mu     sync.Mutex
	next   uint64
	inodes map[uint64]*inode
	byKey  map[string]*inode
}

// A node is a file of any kind. It is reached by its handle, and by a descriptor
// (O_PATH) where the filesystem has no handles, or where its last name may go.
type inode struct {
	id      uint64
	key     string
	handle  *unix.FileHandle
	fd      int // -1: by handle
	kind    uint32
	lookups uint64
}

func newTable(tree *os.File) (*table, error) {
	fd, err := unix.Openat(int(tree.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	t := &table{root: os.NewFile(uintptr(fd), tree.Name()), next: fuse.FUSE_ROOT_ID, inodes: map[uint64]*inode{}, byKey: map[string]*inode{}}
	at, err := openPath(fd, ".")
	if err != nil {
		return nil, err
	}
	t.handles = opensByHandle(fd, at)
	_, _, err = t.adopt(at)
	return t, err
}

// opensByHandle reports whether a node is found by its handle again.
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

// openPath opens one name of a directory, whatever it is, for nothing but to know it.
func openPath(dir int, name string) (int, error) {
	return unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// identify says which node a descriptor is of.
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

// adopt takes over a descriptor of a node, which the kernel is about to be told of.
func (t *table) adopt(fd int) (*inode, vfs.Stat, error) {
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
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.byKey[key]
	if n == nil {
		n = &inode{id: t.next, key: key, handle: h, fd: -1, kind: st.Mode & unix.S_IFMT}
		t.next++
		t.inodes[n.id], t.byKey[key] = n, n
		if h == nil {
			n.fd, fd = fd, -1
		}
	}
	n.lookups++
	if fd >= 0 {
		unix.Close(fd)
	}
	return n, st, nil
}

// pin keeps a node open whose name in a directory is about to go, so that who has it
// open still reaches it.
func (t *table) pin(dir int, name string) {
	fd, err := openPath(dir, name)
	if err != nil {
		return // then nothing goes
	}
	key, _, err := t.identify(fd)
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.byKey[key]; err == nil && n != nil && n.fd < 0 {
		n.fd = fd
		return
	}
	unix.Close(fd)
}

// forget is the kernel's word that it knows a node less often.
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

// with calls do with a descriptor (O_PATH) of the node that the kernel means by a
// number. ESTALE: it is not there any more.
func (t *table) with(id uint64, do func(n *inode, fd int) error) error {
	t.mu.Lock()
	n := t.inodes[id]
	if n == nil {
		t.mu.Unlock()
		return unix.ESTALE
	}
	fd := n.fd
	t.mu.Unlock()
	if fd >= 0 { // it is closed when the kernel does not know the node any more
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

// reopen opens what a descriptor (O_PATH) stands for.
func reopen(fd, flags int) (int, error) {
	return unix.Open(procPath(fd), flags|unix.O_CLOEXEC, 0)
}
