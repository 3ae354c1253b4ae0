//go:build linux

package overlay

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/projquota"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A fork with a limit has a project of its own, where the filesystem of the layers
// has project quotas (ext4, xfs). The layer that it writes to bears the number, and
// so does each that it gets by being sealed: what a sealed layer holds still
// counts. The number lies in a range of ours, and the number on its layer is all
// that is written down of it.
//
// A process in the first user namespace can give a file that it owns another
// project; in a namespace of its own it cannot (fileattr_set_prepare in
// fs/ioctl.c).
const (
	firstProject uint32 = 0x5a << 24 // snapfs's numbers begin here
	projects     uint32 = 1 << 24    // and are so many
)

func isProject(id uint32) bool { return id-firstProject < projects }

// remarking is a file in a layer whose files may not all bear its number.
const remarking = "/remarking"

var _ interface {
	snapshot.Limiter
	snapshot.LimitProber
} = (*backend)(nil)

// CanLimit keeps the contract of [snapshot.LimitProber]: root can limit bytes and
// inodes, with project quotas.
func (b *backend) CanLimit(_ context.Context, l snapshot.DiskLimit) error {
	if l == (snapshot.DiskLimit{}) {
		return nil
	}
	return fail("limiting", "", b.canLimit(l))
}

func (b *backend) canLimit(l snapshot.DiskLimit) error {
	if b.ground != nil {
		return b.ground.CanLimit(l)
	}
	no := func(why string, hints ...string) error {
		return because(errs.ErrNotSupported, b.dir, why, hints...)
	}
	const pool = "snapfs pool create"
	if b.userXattr {
		return no("only root may limit what a fork adds", "sudo snapfs …")
	}
	dir, err := b.nearest()
	if err != nil {
		return err
	}
	defer dir.Close()
	limited, err := projquota.Enabled(int(dir.Fd()))
	if err != nil {
		return failed("ask for quotas", dir.Name(), err)
	}
	if limited {
		if id, err := projquota.Of(int(dir.Fd())); err != nil || id != 0 {
			return no("the directory belongs to a project of another's, whose limit holds for all of it",
				"SNAPFS_HOME=/a/directory/of/no/project snapfs …")
		}
		return nil
	}
	at, err := mount.FilesystemOf(dir.Name())
	if err != nil {
		return err
	}
	why := "the filesystem of the layers, " + at.Type + ", was not mounted with project quotas"
	switch {
	case at.Type != "ext4" && at.Type != "xfs":
		return no("the filesystem of the layers, "+at.Type+", has no project quotas", pool)
	case gone("/proc/sys/fs/quota") && at.Type == "ext4":
		return no("this kernel has no disk quotas", pool)
	case at.Type == "ext4":
		return no(why, pool, "umount DEVICE && tune2fs -O project,quota -Q prjquota DEVICE && mount -o prjquota DEVICE")
	}
	return no(why, pool, "umount DEVICE && mount -o prjquota DEVICE")
}

// nearest opens the state directory, or what is to hold it.
func (b *backend) nearest() (*os.File, error) {
	for at := b.dir; ; at = filepath.Dir(at) {
		f, err := os.Open(at)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || at == "/" {
			return f, err
		}
	}
}

// LimitFork keeps the contract of [snapshot.Limiter]. The first limit of a fork
// marks each file of its layer, the others are one call. Writes beyond it fail with
// EDQUOT on ext4, with ENOSPC on xfs. Symbolic links and other special files that
// were there before the first limit do not count. On xfs a file of the base whose
// blocks were shared and then overwritten counts twice until it is on the disk, and a
// fork that is full to the last block cannot be mounted for writing again until its
// limit is raised: a directory wants more room for a moment than it takes.
func (b *backend) LimitFork(ctx context.Context, fork snapshot.ForkID, l snapshot.DiskLimit) error {
	err := ctx.Err()
	if err == nil {
		err = b.underLayer(ctx, fork, func(r *record) error { return b.limit(ctx, r, l) })
	}
	return fail("limiting", string(fork), err)
}

// limit is called with the layer locked, so that no seal gives the fork another.
func (b *backend) limit(ctx context.Context, r *record, l snapshot.DiskLimit) error {
	if b.ground != nil {
		return b.ground.Limit(ctx, b.layerPath(r.upper)+b.inner(), l)
	}
	if l == (snapshot.DiskLimit{}) {
		if err := fault.Point(ctx, "take the limit away"); err != nil {
			return err
		}
		return b.unlimit(r.upper)
	}
	if err := b.canLimit(l); err != nil {
		return err
	}
	dir, err := os.Open(b.layerPath(r.upper))
	if err != nil {
		return err
	}
	defer dir.Close()
	fd := int(dir.Fd())
	id, err := projquota.Of(fd)
	if err != nil {
		return failed("ask for the project of", dir.Name(), err)
	}
	marked := isProject(id)
	if !marked {
		if id, err = freeProject(fd); err != nil {
			return failed("find a project for", dir.Name(), err)
		}
	}
	if !marked || !gone(dir.Name()+remarking) {
		if err := b.remark(ctx, r.upper, id); err != nil {
			return err
		}
	}
	if err := fault.Point(ctx, "limit the project"); err != nil {
		return err
	}
	n := b.frozen(r, id)
	l = allow(l, ownBytes+n*frozenBytes, ownInodes+n*frozenInodes)
	return failed("limit the project of", dir.Name(), limitProject(fd, id, l))
}

// Beside what a fork wrote, its project is charged for the directories that its
// layers are made of: the layer and its tree, and of the last one also the work
// directory with what the kernel makes in it, which it does when the fork is mounted,
// however full that is.
const (
	ownBytes, ownInodes       = 8 * 4096, 8
	frozenBytes, frozenInodes = 2 * 4096, 2
)

// allow raises a limit by what a fork does not write itself.
func allow(l snapshot.DiskLimit, bytes, inodes int) snapshot.DiskLimit {
	if l.Bytes > 0 {
		l.Bytes += snapshot.Bytes(bytes)
	}
	if l.Inodes > 0 {
		l.Inodes += int64(inodes)
	}
	return l
}

func limitProject(fd int, id uint32, l snapshot.DiskLimit) error {
	return projquota.Limit(fd, id, int64(l.Bytes), l.Inodes)
}

// frozen counts the sealed layers of a fork that bear its project.
func (b *backend) frozen(r *record, id uint32) (n int) {
	for _, layer := range r.layers {
		if b.projectOf(layer) == id {
			n++
		}
	}
	return n
}

// succeed makes the layer next, which is empty, go on with the limit of old.
func (b *backend) succeed(old, next string) error {
	if b.ground != nil {
		return b.ground.Succeed(b.layerPath(old)+b.inner(), b.layerPath(next)+b.inner())
	}
	id := b.projectOf(old)
	if id == 0 {
		return nil
	}
	dir, err := os.Open(b.layerPath(next))
	if err != nil {
		return err
	}
	defer dir.Close()
	use, err := projquota.Usage(int(dir.Fd()), id)
	if err == nil && use.BytesLimit+use.NodesLimit > 0 {
		l := snapshot.DiskLimit{Bytes: snapshot.Bytes(use.BytesLimit), Inodes: use.NodesLimit}
		err = limitProject(int(dir.Fd()), id, allow(l, frozenBytes, frozenInodes))
	}
	if err != nil && !noQuotas(err) {
		return failed("limit the project of", dir.Name(), err)
	}
	for _, path := range []string{b.workPath(next), b.treePath(next)} {
		if err := bear(path, id, true); err != nil {
			return err
		}
	}
	return bear(dir.Name(), id, false)
}

// noQuotas: they are no longer on.
func noQuotas(err error) bool {
	return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL)
}

// freeProject finds a number of ours that nothing bears. Two processes that look
// at once find two, but for one time in millions.
func freeProject(fd int) (uint32, error) {
	for {
		id := firstProject + rand.Uint32N(projects)
		use, err := projquota.Usage(fd, id)
		if err != nil || use == (projquota.Use{ID: id}) {
			return id, err
		}
	}
}

// remark gives a layer, with all in it, a project which has no limit yet. A process
// killed meanwhile leaves the note that tells the next call to do it again. Until
// it is done, a rename from a directory that is not marked to one that is fails with
// EXDEV; the work directory comes first, because there files are made that are then
// renamed to the layer. The layer itself does not hand its project on: what is noted
// in it, beside the tree, is not the fork's.
func (b *backend) remark(ctx context.Context, layer string, id uint32) error {
	if err := fault.Point(ctx, "mark the layer"); err != nil {
		return err
	}
	note := b.layerPath(layer) + remarking
	if err := os.WriteFile(note, nil, 0o600); err != nil {
		return err
	}
	if err := bear(b.layerPath(layer), id, false); err != nil {
		return err
	}
	if err := fault.Point(ctx, "mark what is in the layer"); err != nil {
		return err
	}
	for _, dir := range []string{b.workPath(layer), b.treePath(layer)} {
		if err := descend(dir, marker{ctx, id}.visit); err != nil {
			return err
		}
	}
	return os.Remove(note)
}

// bear gives a directory a project.
func bear(dir string, id uint32, inherit bool) error {
	f, err := vfs.OpenDir(unix.AT_FDCWD, dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return failed("give a project to", dir, projquota.Set(int(f.Fd()), id, inherit))
}

type marker struct {
	ctx context.Context
	id  uint32
}

// visit marks a directory, and then the files in it: what is made meanwhile
// is marked when it is made.
func (m marker) visit(name string, dir *os.File, err error) (dirs []string, _ error) {
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = m.ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	fd := int(dir.Fd())
	if err := projquota.Set(fd, m.id, true); err != nil {
		return nil, failed("give a project to", dir.Name(), err)
	}
	err = vfs.EachEntry(fd, func(entry []byte, _ uint64, typ uint8) error {
		if isDir(fd, entry, typ) {
			dirs = append(dirs, join(name, entry))
			return nil
		}
		return m.file(fd, entry)
	})
	return dirs, err
}

// file marks what can be opened without anything happening: a regular file.
func (m marker) file(dir int, entry []byte) error {
	st, err := vfs.Lstat(dir, string(entry))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !st.IsRegular() {
		return nil
	}
	if err != nil {
		return err
	}
	fd, err := unix.Openat(dir, string(entry), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOATIME|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT || err == unix.ELOOP {
		return nil // it has just gone, or become something else
	}
	if err != nil {
		return failed("open", string(entry), err)
	}
	defer unix.Close(fd)
	return failed("give a project to", string(entry), projquota.Set(fd, m.id, false))
}

// projectOf is the project of ours that a layer bears, or 0.
func (b *backend) projectOf(layer string) uint32 {
	if b.userXattr || b.ground != nil {
		return 0
	}
	fd, err := unix.Open(b.layerPath(layer), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	id, err := projquota.Of(fd)
	if err != nil || !isProject(id) {
		return 0
	}
	return id
}

// dropWork removes the work directory of a layer that is frozen: at once, where it
// is charged to a fork that may want the room.
func (b *backend) dropWork(layer string) {
	if b.projectOf(layer) != 0 {
		_ = os.RemoveAll(b.workPath(layer)) // or Sweep does
	}
	b.discard(b.workPath(layer)) // a layer without one is frozen
}

// unlimit takes away the limits of the project that a layer bears, if it bears one. A
// number without limits means nothing, and is free again when the last file that
// bears it goes.
func (b *backend) unlimit(layer string) error {
	if id := b.projectOf(layer); id != 0 {
		return b.unlimitProject(layer, id)
	}
	return nil
}

func (b *backend) unlimitProject(layer string, id uint32) error {
	dir, err := os.Open(b.layerPath(layer))
	if err != nil {
		return err
	}
	defer dir.Close()
	use, err := projquota.Usage(int(dir.Fd()), id)
	if err == nil && use.BytesLimit+use.NodesLimit > 0 {
		err = projquota.Limit(int(dir.Fd()), id, 0, 0)
	}
	if err != nil && noQuotas(err) {
		return nil
	}
	return failed("lift the limit of", dir.Name(), err)
}

// bearsNone reports whether a layer that nothing names bears no project, and so may
// be used again. The limit of one is taken away, where its fork was removed by a
// process that was killed before it did.
func (b *backend) bearsNone(c *census, layer string) (bool, error) {
	id := b.projectOf(layer)
	if id == 0 {
		return true, nil
	}
	for upper := range c.upper {
		if b.projectOf(upper) == id {
			return false, nil // its fork lives, and has sealed it
		}
	}
	return false, b.unlimitProject(layer, id)
}
