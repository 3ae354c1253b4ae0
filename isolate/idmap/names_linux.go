package idmap

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// create creates name in the directory of the request h by calling do with the ids and the umask of the
// requesting process, and fills out with the new inode.
func (s *server) create(h *fuse.InHeader, name string, umask uint32, do func(dir int) error, out *fuse.EntryOut) fuse.Status {
	return status(s.t.with(h.NodeId, func(_ *inode, dir int) error {
		if err := s.as(h.Owner, umask, func() error { return do(dir) }); err != nil {
			return err
		}
		fd, err := openPath(dir, name)
		if err != nil {
			return err
		}
		return s.entry(fd, name, out)
	}))
}

func (s *server) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	return s.create(&in.InHeader, name, in.Umask, func(dir int) error {
		return unix.Mknodat(dir, name, in.Mode, int(in.Rdev))
	}, out)
}

func (s *server) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return s.create(&in.InHeader, name, in.Umask, func(dir int) error { return unix.Mkdirat(dir, name, in.Mode&0o7777) }, out)
}

func (s *server) Symlink(_ <-chan struct{}, h *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	return s.create(h, name, 0, func(dir int) error { return unix.Symlinkat(target, dir, name) }, out)
}

// Create answers the kernel's request to create a file and open it. The kernel has checked that the name is
// free.
func (s *server) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	return status(s.t.with(in.NodeId, func(_ *inode, dir int) error {
		fd := -1
		err := s.as(in.Owner, in.Umask, func() (err error) {
			flags := openFlags(in.Flags) | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
			fd, err = unix.Openat(dir, name, flags, in.Mode&0o7777)
			return err
		})
		if err != nil {
			return err
		}
		at, err := openPath(dir, name)
		if err == nil {
			err = s.entry(at, name, &out.EntryOut)
		}
		if err != nil {
			unix.Close(fd)
			return err
		}
		out.Fh, out.OpenFlags = s.opened(fd)
		if s.checkedName(name) != "" {
			out.OpenFlags |= fuse.FOPEN_DIRECT_IO
		}
		return nil
	}))
}

// mapped calls do, which adds a name to a directory on disk. If the filesystem there has no mapping for the
// ids of this process, such as a FUSE filesystem that a container mounted, mapped calls do again with the ids
// of the process caller.
func (s *server) mapped(caller fuse.Owner, do func() error) error {
	err := do()
	if err == unix.EOVERFLOW {
		err = s.as(caller, 0, do)
	}
	return err
}

// Link answers the kernel's request to add a hard link called name to an inode. The kernel has checked the
// permission.
func (s *server) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	return status(s.t.with(in.Oldnodeid, func(_ *inode, fd int) error {
		return s.t.with(in.NodeId, func(_ *inode, dir int) error {
			link := func() error { return unix.Linkat(fd, "", dir, name, unix.AT_EMPTY_PATH) }
			if err := s.mapped(in.Owner, link); err != nil {
				return err
			}
			at, err := openPath(dir, name)
			if err != nil {
				return err
			}
			return s.entry(at, name, out)
		})
	}))
}

func (s *server) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return s.remove(h, name, 0)
}

func (s *server) Rmdir(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return s.remove(h, name, unix.AT_REMOVEDIR)
}

func (s *server) remove(h *fuse.InHeader, name string, flags int) fuse.Status {
	return status(s.t.with(h.NodeId, func(_ *inode, dir int) error {
		s.t.pin(dir, name)
		return unix.Unlinkat(dir, name, flags)
	}))
}

// Rename answers the kernel's request to rename a file. It supports the flags that the filesystem on disk
// supports; ZFS before 2.2 supports none. It rejects RENAME_WHITEOUT, because the whiteout would belong to
// root instead of the caller.
func (s *server) Rename(_ <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	if in.Flags&unix.RENAME_WHITEOUT != 0 {
		return fuse.EINVAL
	}
	return status(s.t.with(in.NodeId, func(_ *inode, dir int) error {
		return s.t.with(in.Newdir, func(_ *inode, toDir int) error {
			if in.Flags == 0 {
				s.t.pin(toDir, to)
			}
			return s.mapped(in.Owner, func() error { return unix.Renameat2(dir, from, toDir, to, uint(in.Flags)) })
		})
	}))
}

func (s *server) Readlink(_ <-chan struct{}, h *fuse.InHeader) (target []byte, code fuse.Status) {
	err := s.t.with(h.NodeId, func(n *inode, fd int) error {
		if n.checked != "" {
			return unix.EACCES // it leads to a text under another name
		}
		buf := make([]byte, unix.PathMax)
		size, err := unix.Readlinkat(fd, "", buf)
		target = buf[:max(size, 0)]
		if err == nil && s.handles != nil {
			target, err = s.confine(fd, target)
		}
		return err
	})
	return target, status(err)
}
