package idmap

import (
	"strconv"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// procPath returns a path that leads to the file behind the descriptor fd of this process; the
// kernel does not follow a symbolic link there (proc(5), /proc/PID/fd).
func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// fill fills out, a reply to the kernel, with the attributes of st as the mount shows them, with mapped ids.
func (s *server) fill(st *vfs.Stat, out *fuse.Attr) {
	*out = fuse.Attr{
		Ino: st.Ino, Size: uint64(st.Size), Blocks: uint64(st.Blocks), Mode: st.Mode, Nlink: st.Nlink, Blksize: 4096,
		Owner: fuse.Owner{Uid: s.ids.toShown(st.UID), Gid: s.ids.toShown(st.GID)}, Rdev: uint32(st.Rdev),
		Atime: uint64(st.ATime.Sec), Atimensec: st.ATime.Nsec,
		Mtime: uint64(st.MTime.Sec), Mtimensec: st.MTime.Nsec,
		Ctime: uint64(st.CTime.Sec), Ctimensec: st.CTime.Nsec,
	}
}

// entry fills out, the reply to the kernel's lookup of name, with the id and the attributes of the inode
// behind the descriptor fd. The kernel then refers to the inode once more, which entry counts. It owns fd
// from then on.
func (s *server) entry(fd int, name string, out *fuse.EntryOut) error {
	n, st, err := s.t.adopt(fd, s.checkedName(name))
	if err != nil {
		return err
	}
	out.NodeId, out.Generation = n.id, 1
	out.SetEntryTimeout(s.cache)
	out.SetAttrTimeout(s.cache)
	s.fill(&st, &out.Attr)
	if n.checked != "" {
		s.fitChecked(n, n.fd, &out.Attr) // it has a descriptor from the beginning to the end
	}
	return nil
}

// Lookup answers the kernel's request to look up a name in a directory. It lets the kernel cache that a name
// is missing, too.
func (s *server) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	return status(s.t.with(h.NodeId, func(_ *inode, dir int) error {
		fd, err := openPath(dir, name)
		if err == unix.ENOENT {
			out.NodeId = 0
			out.SetEntryTimeout(s.cache)
			return nil
		}
		if err != nil {
			return err
		}
		return s.entry(fd, name, out)
	}))
}

func (s *server) Forget(id, times uint64) { s.t.forget(id, times) }

func (s *server) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return status(s.t.with(in.NodeId, func(n *inode, fd int) error { return s.attr(n, fd, out) }))
}

func (s *server) attr(n *inode, fd int, out *fuse.AttrOut) error {
	st, err := vfs.Lstat(fd, "")
	if err != nil {
		return err
	}
	out.SetTimeout(s.cache)
	s.fill(&st, &out.Attr)
	s.fitChecked(n, fd, &out.Attr)
	return nil
}

// SetAttr answers the kernel's request to change attributes of an inode. It changes the owners first: that
// clears set-id bits, which a mode in the same request sets again.
func (s *server) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	return status(s.t.with(in.NodeId, func(n *inode, fd int) error {
		if size, ok := in.GetSize(); ok {
			if err := truncate(fd, int64(size), in.Valid&fuse.FATTR_KILL_SUIDGID != 0); err != nil {
				return err
			}
		}
		if err := s.chown(fd, in); err != nil {
			return err
		}
		if mode, ok := in.GetMode(); ok && n.kind != unix.S_IFLNK {
			if err := unix.Chmod(procPath(fd), mode&0o7777); err != nil {
				return err
			}
		}
		if err := utimes(fd, in); err != nil {
			return err
		}
		return s.attr(n, fd, out)
	}))
}

func truncate(fd int, size int64, kill bool) error {
	f, err := reopen(fd, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(f)
	if err := unix.Ftruncate(f, size); err != nil {
		return err
	}
	return dropSetID(f, kill)
}

// dropSetID clears, if kill is set, those set-id bits of the file fd that the kernel clears when a user other
// than root writes to a file.
func dropSetID(fd int, kill bool) error {
	if !kill {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	mode := st.Mode & 0o7777 &^ unix.S_ISUID
	if mode&unix.S_IXGRP != 0 {
		mode &^= unix.S_ISGID
	}
	if mode == st.Mode&0o7777 {
		return nil
	}
	return unix.Fchmod(fd, mode)
}

func (s *server) chown(fd int, in *fuse.SetAttrIn) (err error) {
	uid, gid := uint32(nobody), uint32(nobody) // unchanged
	if in.Valid&fuse.FATTR_UID != 0 {
		if uid, err = s.ids.toDisk(in.Uid); err != nil {
			return err
		}
	}
	if in.Valid&fuse.FATTR_GID != 0 {
		if gid, err = s.ids.toDisk(in.Gid); err != nil {
			return err
		}
	}
	if uid == nobody && gid == nobody {
		return nil
	}
	return unix.Fchownat(fd, "", int(int32(uid)), int(int32(gid)), unix.AT_EMPTY_PATH)
}

func utimes(fd int, in *fuse.SetAttrIn) error {
	stamp := func(set, now uint32, sec uint64, nsec uint32) unix.Timespec {
		switch {
		case in.Valid&now != 0:
			return unix.Timespec{Nsec: unix.UTIME_NOW}
		case in.Valid&set != 0:
			return unix.Timespec{Sec: int64(sec), Nsec: int64(nsec)}
		}
		return unix.Timespec{Nsec: unix.UTIME_OMIT}
	}
	times := []unix.Timespec{
		stamp(fuse.FATTR_ATIME, fuse.FATTR_ATIME_NOW, in.Atime, in.Atimensec),
		stamp(fuse.FATTR_MTIME, fuse.FATTR_MTIME_NOW, in.Mtime, in.Mtimensec),
	}
	if times[0].Nsec == unix.UTIME_OMIT && times[1].Nsec == unix.UTIME_OMIT {
		return nil
	}
	return unix.UtimesNanoAt(fd, "", times, unix.AT_EMPTY_PATH)
}

func (s *server) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(s.t.root.Fd()), &st); err != nil {
		return status(err)
	}
	*out = fuse.StatfsOut{
		Blocks: st.Blocks, Bfree: st.Bfree, Bavail: st.Bavail, Files: st.Files, Ffree: st.Ffree,
		Bsize: uint32(st.Bsize), Frsize: uint32(st.Frsize), NameLen: uint32(st.Namelen),
	}
	return fuse.OK
}
