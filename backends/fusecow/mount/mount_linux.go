package mount

import (
	"fmt"
	"io"
	"log" //nolint:depguard // the library takes a logger, which must be silent
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/snapfs/snapfs/backends/fusecow"
	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/spare"
	"golang.org/x/sys/unix"
)

// A Server serves a copy-on-write filesystem of package layer over FUSE, from goroutines of this process,
// until its last mount is gone. If the process dies, its mounts stay but every access fails. The process must
// not touch mapped pages of files in its own mounts: the waiting thread would block garbage collection, and
// so the server.
type Server struct {
	served
	server *fuse.Server
	fuse   *mount.FUSE
	pass   *passthrough
}

const maxWrite = 1 << 20

// New starts to serve f, wholly or the part that view names, and returns the server and a detached mount with
// the MOUNT_ATTR_* flags attr, which the caller closes. It needs /dev/fuse, and makes a user namespace if
// this process may not mount. Other users may use the mount if this process is root.
func New(f *layer.FS, view layer.View, attr uint64) (*Server, *os.File, error) {
	k, root, err := mount.NewFUSE(mount.FUSEOptions{
		Subtype: "fusecow", Others: os.Geteuid() == 0, MaxRead: maxWrite, ReadOnly: f.ReadOnly(),
	}, attr)
	if err != nil {
		return nil, nil, err
	}
	s := &Server{served: served{f: f}, fuse: k}
	dev, err := unix.FcntlInt(uintptr(k.Dev), unix.F_DUPFD_CLOEXEC, 0) // the library closes this one
	if err != nil {
		k.Close()
		root.Close()
		return nil, nil, err
	}
	// CAP_NO_EXPORT_SUPPORT (Linux 6.9) disables file handles. They are valid only while the kernel caches the
	// inode, so that an overlay above would now and then take two names of a file for two files.
	const extra = fuse.CAP_HANDLE_KILLPRIV_V2 | fuse.CAP_DONT_MASK | fuse.CAP_READDIRPLUS_AUTO | fuse.CAP_SETXATTR_EXT |
		fuse.CAP_NO_EXPORT_SUPPORT
	s.pass = newPassthrough(f)
	all := raw{fuse.NewDefaultRawFileSystem(), &s.served, s.pass, uint64(rand.Uint32()>>1 + 1)}
	options := &fuse.MountOptions{
		IDMappedMount: true, MaxWrite: maxWrite, EnableAcl: true, EnableSymlinkCaching: true, ExplicitDataCacheControl: true,
		DisableSplice:     true, // the data is in memory already
		ExtraCapabilities: extra, Logger: log.New(io.Discard, "", 0),
	}
	spare.Loop(func() { s.server, err = fuse.NewServer(viewOf(all, view), "/dev/fd/"+strconv.Itoa(dev), options) })
	if err != nil {
		k.Close()
		root.Close()
		return nil, nil, fmt.Errorf("serving: %w", err)
	}
	if f.ReadOnly() && os.Geteuid() == 0 && s.server.KernelSettings().Flags64()&fuse.CAP_PASSTHROUGH != 0 {
		s.pass.server = s.server
	}
	f.OnStale(func(dir uint64, name string) { s.server.EntryNotify(dir, name) }) // after an error the kernel has no such entry
	go s.server.Serve()
	disablePoll(root)
	return s, root, nil
}

// Mount starts to serve f over FUSE, as [New] does. It has the form of a [fusecow.Mounter], which
// [fusecow.Serve] needs.
func Mount(f *layer.FS, view layer.View, attr uint64) (fusecow.MountedFS, *os.File, error) {
	return New(f, view, attr)
}

// disablePoll makes the kernel remember that files of the filesystem mounted at root cannot be polled.
// Otherwise the Go runtime would call epoll_ctl(2) for each file that this process opens there, and could
// deadlock with this server.
func disablePoll(root *os.File) {
	fd, err := unix.Openat(int(root.Fd()), ".go-fuse-epoll-hack", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	unix.Close(fd)
}

// MountAgain returns another detached mount of the served filesystem, with the MOUNT_ATTR_* flags attr, for a
// process that needs the tree too; the caller closes the mount.
func (s *Server) MountAgain(attr uint64) (*os.File, error) { return s.fuse.Mount(attr) }

// Flush writes all changes to the filesystem's layer: it makes the kernel write back mapped pages, and
// commits metadata to the log.
func (s *Server) Flush() error {
	root, err := s.MountAgain(unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		return err
	}
	defer root.Close()
	dir, err := unix.Openat(int(root.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := unix.Syncfs(dir); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.f.Commit(false)
}

// Wait returns after the last mount of the served filesystem is gone, so that the server may end.
func (s *Server) Wait() { s.server.Wait() }

// Close closes the FUSE connection. The caller must have waited with Wait, and cannot use the server
// afterwards.
func (s *Server) Close() {
	s.pass.closeIdle()
	s.fuse.Close()
}
