package sendstream

import (
	"bytes"
	"errors"
	"math"
	"strconv"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// New inodes belong to this process until later commands set their owner.

func (a *applier) mkfile(c *command) error { return a.make(c, unix.S_IFREG, 0) }
func (a *applier) mkfifo(c *command) error { return a.make(c, unix.S_IFIFO, 0) }
func (a *applier) mksock(c *command) error { return a.make(c, unix.S_IFSOCK, 0) }

func (a *applier) mknod(c *command) error {
	n, err := c.numbers(aMode, aRdev)
	if err != nil {
		return err
	}
	kind := uint32(n[0]) & unix.S_IFMT
	if kind != unix.S_IFCHR && kind != unix.S_IFBLK || n[1] > math.MaxUint32 {
		return bad("a device of type %#o and number %#x", kind, n[1])
	}
	return a.make(c, kind, int(n[1]))
}

func (a *applier) make(c *command, kind uint32, dev int) error {
	s, err := a.spot(c, aPath)
	if err != nil {
		return err
	}
	defer s.close()
	if err := vfs.MakeNode(s.dir, s.name, kind|0o600, uint64(dev)); err != nil {
		return err
	}
	return dropACLs(s, aclAccess)
}

func (a *applier) mkdir(c *command) error {
	s, err := a.spot(c, aPath)
	if err != nil {
		return err
	}
	defer s.close()
	if err := unix.Mkdirat(s.dir, s.name, 0o700); err != nil {
		return err
	}
	return dropACLs(s, aclAccess, aclDefault)
}

// Names of the extended attributes with access control lists. The kernel gives a new inode lists if its
// directory has a default one (acl(5)). They must be removed, because a stream sets all lists that an inode
// should have.
const (
	aclAccess  = "system.posix_acl_access"
	aclDefault = "system.posix_acl_default"
)

// dropACLs removes the access control lists named by lists from a new inode, which has inherited them from
// its directory. A missing list is no error.
func dropACLs(s spot, lists ...string) error {
	for _, list := range lists {
		err := vfs.RemoveXattr(s.dir, s.name, list)
		if err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
	}
	return nil
}

func (a *applier) symlink(c *command) error {
	target, err := c.text(aPathLink)
	if err != nil {
		return err
	}
	s, err := a.spot(c, aPath)
	if err != nil {
		return err
	}
	defer s.close()
	return unix.Symlinkat(target, s.dir, s.name)
}

// two opens the parent directories of both paths of a rename or link command of a send stream, given by the
// attributes from and to, and calls do with them.
func (a *applier) two(c *command, from, to attr, do func(from, to spot) error) error {
	f, err := a.spot(c, from)
	if err != nil {
		return err
	}
	defer f.close()
	t, err := a.spot(c, to)
	if err != nil {
		return err
	}
	defer t.close()
	return do(f, t)
}

func (a *applier) rename(c *command) error {
	return a.two(c, aPath, aPathTo, func(f, t spot) error {
		return a.renameOrLink(c, aPath, f, func() error { return unix.Renameat(f.dir, f.name, t.dir, t.name) })
	})
}

func (a *applier) link(c *command) error {
	return a.two(c, aPathLink, aPath, func(f, t spot) error {
		return a.renameOrLink(c, aPathLink, f, func() error { return unix.Linkat(f.dir, f.name, t.dir, t.name, 0) })
	})
}

// renameOrLink calls do, which renames or links the file from. An overlay refuses that (EXDEV) for a file in
// a lower layer whose path is too long for a redirect. renameOrLink then opens the file for writing, which
// copies it up, and calls do again.
func (a *applier) renameOrLink(c *command, at attr, from spot, do func() error) error {
	if err := a.checkLinks(from.dir, from.name); err != nil {
		return err
	}
	err := do()
	if err != unix.EXDEV {
		return err
	}
	f, ferr := a.regular(string(c.parts[at]))
	if ferr == nil {
		ferr = f.Close()
	}
	if ferr != nil {
		return &errs.Error{
			Op: "applying " + c.op.String(), Path: string(c.parts[at]), Kind: errs.ErrNotSupported,
			Err: errors.New("the filesystem cannot rename this file; send the whole tree, without a base"),
		}
	}
	return do()
}

func (a *applier) unlink(c *command) error { return a.remove(c, 0) }
func (a *applier) rmdir(c *command) error  { return a.remove(c, unix.AT_REMOVEDIR) }

func (a *applier) remove(c *command, flags int) error {
	s, err := a.spot(c, aPath)
	if err != nil {
		return err
	}
	defer s.close()
	return unix.Unlinkat(s.dir, s.name, flags)
}

// on calls do, which changes attributes of an inode, with an O_PATH descriptor of the inode at the path of
// the stream command c.
func (a *applier) on(c *command, do func(fd int) error) error {
	fd, err := a.openInode(c)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return do(fd)
}

func (a *applier) setXattr(c *command) error {
	name, err := c.text(aXattrName)
	if err != nil {
		return err
	}
	value, err := c.bytes(aXattrData)
	if err != nil {
		return err
	}
	err = a.on(c, func(fd int) error { return vfs.SetXattr(fd, "", name, value, 0) })
	if a.leavesOut(c, name, err) {
		return nil
	}
	return err
}

func (a *applier) removeXattr(c *command) error {
	name, err := c.text(aXattrName)
	if err != nil {
		return err
	}
	err = a.on(c, func(fd int) error { return vfs.RemoveXattr(fd, "", name) })
	if a.leavesOut(c, name, err) {
		return nil
	}
	return err
}

func (a *applier) chown(c *command) error {
	n, err := c.numbers(aUID, aGID)
	if err != nil {
		return err
	}
	if n[0] >= math.MaxUint32 || n[1] >= math.MaxUint32 {
		return bad("invalid owner %d:%d", n[0], n[1])
	}
	if !a.chowns {
		return nil
	}
	return a.on(c, func(fd int) error { return vfs.SetOwner(fd, int(n[0]), int(n[1])) })
}

func (a *applier) chmod(c *command) error {
	mode, err := c.number(aMode)
	if err != nil {
		return err
	}
	return a.on(c, func(fd int) error {
		st, err := vfs.Lstat(fd, "")
		if err != nil || st.IsSymlink() { // the mode of a symbolic link has no effect and cannot be set
			return err
		}
		return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), uint32(mode)&0o7777)
	})
}

func (a *applier) utimes(c *command) error {
	atime, err := c.time(aAtime)
	if err != nil {
		return err
	}
	mtime, err := c.time(aMtime)
	if err != nil {
		return err
	}
	t := &times{vfs.Timestamp{Sec: atime.Sec, Nsec: uint32(atime.Nsec)}, vfs.Timestamp{Sec: mtime.Sec, Nsec: uint32(mtime.Nsec)}}
	if len(c.parts[aPath]) == 0 {
		a.rootTimes = t
	}
	return a.on(c, func(fd int) error { return vfs.SetTimes(fd, &t.access, t.modified) })
}

// offset converts at, a file offset from a send stream, to the kernel's type, after checking that n bytes
// from there end within the largest possible file.
func offset(at uint64, n uint64) (int64, error) {
	if at > math.MaxInt64 || n > math.MaxInt64-at {
		return 0, bad("%d bytes at offset %d", n, at)
	}
	return int64(at), nil
}

func (a *applier) write(c *command) error {
	at, err := c.number(aOffset)
	if err != nil {
		return err
	}
	data, err := c.bytes(aData)
	if err != nil {
		return err
	}
	off, err := offset(at, uint64(len(data)))
	if err != nil {
		return err
	}
	f, err := a.file(c)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, off)
	return err
}

func (a *applier) truncate(c *command) error {
	size, err := c.number(aSize)
	if err != nil {
		return err
	}
	n, err := offset(size, 0)
	if err != nil {
		return err
	}
	f, err := a.file(c)
	if err != nil {
		return err
	}
	return f.Truncate(n)
}

// clone executes the command of a send stream that copies a range of one file of the tree into another. It
// shares disk blocks if the filesystem can.
func (a *applier) clone(c *command) error {
	n, err := c.numbers(aOffset, aCloneFrom, aCloneLen)
	if err != nil {
		return err
	}
	to, err := offset(n[0], n[2])
	if err != nil {
		return err
	}
	from, err := offset(n[1], n[2])
	if err != nil {
		return err
	}
	if uuid, err := c.bytes(aCloneUUID); err != nil {
		return err
	} else if !bytes.Equal(uuid, a.uuid) {
		return bad("a clone from a file of another tree")
	}
	path, err := c.text(aClonePath)
	if err != nil {
		return err
	}
	dst, err := a.file(c)
	if err != nil {
		return err
	}
	src, err := a.regular(path)
	if err != nil {
		return err
	}
	defer src.Close()
	return share(a.ctx, dst, src, to, from, int64(n[2]))
}
