package mount

import (
	"fmt"
	"io"
	"log"
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

// A Server answers the kernel for a filesystem, from goroutines of this process, for
// as long as one of its mounts is there. Where the process dies the mounts stay,
// dead. This process may use them too, but for a page of a file in its own memory:
// a thread that waits for one keeps the others from collecting garbage.
type Server struct {
	served
	server *fuse.Server
	fuse   *mount.FUSE
	pass   *passthrough
}

const maxWrite = 1 << 20

// New mounts a filesystem, or one side of it, detached, and begins to serve it. It needs /dev/fuse, and
// a user namespace where this process may not mount. Attr are MOUNT_ATTR_* flags.
// Others than this user may use the mount where this process is root.
func New(f *layer.FS, side layer.View, attr uint64) (*Server, *os.File, error) {
	k, root, err := mount.NewFUSE(mount.FUSEOptions{
		Subtype: "fusecow", Others: os.Geteuid() == 0, MaxRead: maxWrite, ReadOnly: f.ReadOnly(),
	}, attr)
	if err != nil {
		return nil, nil, err
	}
	s := &Server{served: served{f: f}, fuse: k}
	dev, err := unix.FcntlInt(uintptr(k.Dev), unix.F_DUPFD_CLOEXEC, 0) // which the library closes
	if err != nil {
		k.Close()
		root.Close()
		return nil, nil, err
	}
	// Without file handles (Linux 6.9), which would lead somewhere only while the kernel has the
	// file cached: an overlay above would tell two names of one file apart now and then.
	const extra = fuse.CAP_HANDLE_KILLPRIV_V2 | fuse.CAP_DONT_MASK | fuse.CAP_READDIRPLUS_AUTO | fuse.CAP_SETXATTR_EXT |
		fuse.CAP_NO_EXPORT_SUPPORT
	s.pass = newPassthrough(f)
	all := raw{fuse.NewDefaultRawFileSystem(), &s.served, s.pass, uint64(rand.Uint32()>>1 + 1)}
	options := &fuse.MountOptions{
		IDMappedMount: true, MaxWrite: maxWrite, EnableAcl: true, EnableSymlinkCaching: true, ExplicitDataCacheControl: true,
		DisableSplice:     true, // what is read is in memory already
		ExtraCapabilities: extra, Logger: log.New(io.Discard, "", 0),
	}
	spare.Loop(func() { s.server, err = fuse.NewServer(viewOf(all, side), "/dev/fd/"+strconv.Itoa(dev), options) })
	if err != nil {
		k.Close()
		root.Close()
		return nil, nil, fmt.Errorf("serving: %w", err)
	}
	if f.ReadOnly() && os.Geteuid() == 0 && s.server.KernelSettings().Flags64()&fuse.CAP_PASSTHROUGH != 0 {
		s.pass.server = s.server
	}
	f.OnStale(func(dir uint64, name string) { s.server.EntryNotify(dir, name) }) // one that it forgot it will ask for
	go s.server.Serve()
	disablePoll(root)
	return s, root, nil
}

// Mount is [New] for [fusecow.Serve].
func Mount(f *layer.FS, side layer.View, attr uint64) (fusecow.MountedFS, *os.File, error) {
	return New(f, side, attr)
}

// pollNot has the kernel learn that files here are not polled: the runtime asks that
// of each file that it opens, on a thread that it believes to be busy (epoll_ctl(2)
// without leave). The library answers to this name by itself.
func disablePoll(root *os.File) {
	fd, err := unix.Openat(int(root.Fd()), ".go-fuse-epoll-hack", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	unix.Close(fd)
}

// More is one more mount of the same filesystem, with flags of its own.
func (s *Server) MountAgain(attr uint64) (*os.File, error) { return s.fuse.Mount(attr) }

// Flush tells the log of all that was done to names and attributes, and of what was
// written to mapped pages.
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

// Wait returns when the last mount has gone.
func (s *Server) Wait() { s.server.Wait() }

// Close lets go of /dev/fuse when Wait has returned. Nobody may use the server from
// then on: its descriptors may be another's.
func (s *Server) Close() {
	s.pass.closeIdle()
	s.fuse.Close()
}
