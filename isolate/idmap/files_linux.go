package idmap

import (
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// openFlags returns the flags with which the server opens a file, from those that a process used. It drops
// flags such as O_APPEND, because each write carries its offset and the kernel does the caching.
func openFlags(flags uint32) int {
	const allowed = unix.O_ACCMODE | unix.O_TRUNC | unix.O_SYNC | unix.O_DSYNC | unix.O_NOATIME
	return int(flags) & allowed
}

func (s *server) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	return status(s.t.with(in.NodeId, func(n *inode, fd int) error {
		if n.kind != unix.S_IFREG {
			return unix.EIO // the kernel opens these itself
		}
		if n.checked != "" {
			f, err := s.openChecked(n, fd, openFlags(in.Flags))
			if err == nil {
				out.Fh, out.OpenFlags = s.opened(f)
				out.OpenFlags |= fuse.FOPEN_DIRECT_IO // what one handle reads is not what another writes
			}
			return err
		}
		f, err := reopen(fd, openFlags(in.Flags))
		if err != nil {
			return err
		}
		if err := dropSetID(f, in.Mode&fuse.OPEN_KILL_SUIDGID != 0); err != nil {
			unix.Close(f)
			return err
		}
		out.Fh, out.OpenFlags = s.opened(f)
		return nil
	}))
}

// opened returns the FUSE handle by which the kernel refers to the open file f, and the flags of the reply to
// the kernel's open request.
func (s *server) opened(f int) (handle uint64, flags uint32) {
	if s.handles != nil {
		s.handles.add(f)
		return uint64(f), 0
	}
	return uint64(f), fuse.FOPEN_KEEP_CACHE
}

func (s *server) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	if s.handles != nil {
		s.handles.drop(int(in.Fh))
	}
	unix.Close(int(in.Fh))
}

// Flush answers the kernel's request at the close of a file with ENOSYS, so that the kernel sends no more of
// them: there is nothing to write then.
func (s *server) Flush(_ <-chan struct{}, _ *fuse.FlushIn) fuse.Status { return fuse.ENOSYS }

func (s *server) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n, err := unix.Pread(int(in.Fh), buf[:min(len(buf), int(in.Size))], int64(in.Offset))
	if err != nil {
		return nil, status(err)
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

func (s *server) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	if in.WriteFlags&fuse.WRITE_CACHE != 0 {
		return writeMapped(int(in.Fh), data, int64(in.Offset))
	}
	n, err := unix.Pwrite(int(in.Fh), data, int64(in.Offset))
	if err == nil {
		err = dropSetID(int(in.Fh), in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0)
	}
	return uint32(max(n, 0)), status(err)
}

// writeMapped writes data of pages that a process changed through a mapping to offset at of fd. It restores
// the file capabilities that the write removes, because writing through a mapping must not remove them.
func writeMapped(fd int, data []byte, at int64) (uint32, fuse.Status) {
	var caps [capSize3]byte
	size, none := unix.Fgetxattr(fd, capability, caps[:])
	n, err := unix.Pwrite(fd, data, at)
	if none == nil {
		err = errors.Join(err, unix.Fsetxattr(fd, capability, caps[:size], 0))
	}
	return uint32(max(n, 0)), status(err)
}

func (s *server) Lseek(_ <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	at, err := unix.Seek(int(in.Fh), int64(in.Offset), int(in.Whence))
	out.Offset = uint64(max(at, 0))
	return status(err)
}

func (s *server) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	return status(unix.Fallocate(int(in.Fh), in.Mode, int64(in.Offset), int64(in.Length)))
}

func (s *server) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return status(unix.Fsync(int(in.Fh)))
}

func (s *server) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return status(s.t.with(in.NodeId, func(_ *inode, fd int) error {
		f, err := reopen(fd, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer unix.Close(f)
		return unix.Fsync(f)
	}))
}
