//go:build linux

// Package quota limits the forks of the overlay backend by project quotas (ext4, xfs).
//
// A fork with a limit has a project id of its own, which its upper layers carry: also those
// that a seal has frozen, whose content still counts. The ids are in a range that snapfs uses,
// and are stored only on the layers.
//
// A process in the initial user namespace can move a file that it owns to another project; in
// another user namespace it cannot (fileattr_set_prepare in fs/ioctl.c).
package quota

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/projquota"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

const (
	firstProject uint32 = 0x5a << 24 // the first id of snapfs
	projectCount uint32 = 1 << 24    // and the number of ids
)

// Projects limits the disk space of forks by the project quotas of the filesystem that stores their layers.
type Projects struct{ Store *store.Store }

func isProject(id uint32) bool { return id-firstProject < projectCount }

// labelling is the path, in a layer, of a file that exists while not all files of the layer have the quota
// project id yet. After a kill, it makes the next call label them again.
const labelling = "/remarking"

// CanLimit returns nil if project quotas can limit forks to l, or else an error with the
// reason.
func (p Projects) CanLimit(l snapshot.DiskLimit) error {
	if p.Store.Storage != nil {
		return p.Store.Storage.CanLimit(l)
	}
	no := func(why string, hints ...string) error {
		return store.Refuse(errs.ErrNotSupported, p.Store.Dir, why, hints...)
	}
	const pool = "snapfs pool create"
	if p.Store.UserXattr {
		return no("only root can limit a fork", "sudo snapfs …")
	}
	dir, err := p.openNearest()
	if err != nil {
		return err
	}
	defer dir.Close()
	limited, err := projquota.Enabled(int(dir.Fd()))
	if err != nil {
		return store.PathError("ask for quotas", dir.Name(), err)
	}
	if limited {
		if id, err := projquota.Of(int(dir.Fd())); err != nil || id != 0 {
			return no("the directory belongs to a project of another program, whose limit covers all of it",
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
	case store.IsGone("/proc/sys/fs/quota") && at.Type == "ext4":
		return no("this kernel has no disk quotas", pool)
	case at.Type == "ext4":
		return no(why, pool, "umount DEVICE && tune2fs -O project,quota -Q prjquota DEVICE && mount -o prjquota DEVICE")
	}
	return no(why, pool, "umount DEVICE && mount -o prjquota DEVICE")
}

// openNearest opens the state directory, or its nearest existing parent, to find out whether its filesystem
// has quotas. The caller closes it.
func (p Projects) openNearest() (*os.File, error) {
	for at := p.Store.Dir; ; at = filepath.Dir(at) {
		f, err := os.Open(at)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || at == "/" {
			return f, err
		}
	}
}

// Limit sets the disk limit of the fork with record r to l. The caller holds the lock of the
// fork's layer, so that no seal replaces it meanwhile.
func (p Projects) Limit(ctx context.Context, r *store.Record, l snapshot.DiskLimit) error {
	if p.Store.Storage != nil {
		return p.Store.Storage.Limit(ctx, p.Store.LayerPath(r.Upper)+p.Store.Inner(), l)
	}
	if l == (snapshot.DiskLimit{}) {
		if err := fault.Point(ctx, "remove the limit"); err != nil {
			return err
		}
		return p.unlimit(r.Upper)
	}
	if err := p.CanLimit(l); err != nil {
		return err
	}
	dir, err := os.Open(p.Store.LayerPath(r.Upper))
	if err != nil {
		return err
	}
	defer dir.Close()
	fd := int(dir.Fd())
	id, err := projquota.Of(fd)
	if err != nil {
		return store.PathError("read the project of", dir.Name(), err)
	}
	marked := isProject(id)
	if !marked {
		if id, err = freeProject(fd); err != nil {
			return store.PathError("find a project for", dir.Name(), err)
		}
	}
	if !marked || !store.IsGone(dir.Name()+labelling) {
		if err := p.label(ctx, r.Upper, id); err != nil {
			return err
		}
	}
	if err := fault.Point(ctx, "limit the project"); err != nil {
		return err
	}
	n := p.frozen(r, id)
	l = addOverhead(l, ownBytes+n*frozenBytes, ownInodes+n*frozenInodes)
	return store.PathError("limit the project of", dir.Name(), limitProject(fd, id, l))
}

// The space that a quota project is charged for empty layers, which a fork's limit must not include: each
// layer and its tree directory, and for the upper layer the work directory with the kernel's entries in it.
// The kernel makes those at each mount, even if the fork is full.
const (
	ownBytes, ownInodes       = 8 * 4096, 8
	frozenBytes, frozenInodes = 2 * 4096, 2
)

// addOverhead returns the limit l increased by bytes and inodes, the space of empty layers; no limit stays
// none.
func addOverhead(l snapshot.DiskLimit, bytes, inodes int) snapshot.DiskLimit {
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

// frozen counts the sealed layers of the fork with record r that have its project id, and so count for its
// limit.
func (p Projects) frozen(r *store.Record, id uint32) (n int) {
	for _, layer := range r.Layers {
		if p.ProjectOf(layer) == id {
			n++
		}
	}
	return n
}

// InheritLimit gives the empty layer next the project id of the layer old, so that the limit of their fork
// applies to both.
func (p Projects) InheritLimit(old, next string) error {
	if p.Store.Storage != nil {
		return p.Store.Storage.InheritLimit(p.Store.LayerPath(old)+p.Store.Inner(), p.Store.LayerPath(next)+p.Store.Inner())
	}
	id := p.ProjectOf(old)
	if id == 0 {
		return nil
	}
	dir, err := os.Open(p.Store.LayerPath(next))
	if err != nil {
		return err
	}
	defer dir.Close()
	use, err := projquota.Usage(int(dir.Fd()), id)
	if err == nil && use.BytesLimit+use.NodesLimit > 0 {
		l := snapshot.DiskLimit{Bytes: snapshot.Bytes(use.BytesLimit), Inodes: use.NodesLimit}
		err = limitProject(int(dir.Fd()), id, addOverhead(l, frozenBytes, frozenInodes))
	}
	if err != nil && !noQuotas(err) {
		return store.PathError("limit the project of", dir.Name(), err)
	}
	for _, path := range []string{p.Store.WorkPath(next), p.Store.TreePath(next)} {
		if err := setProject(path, id, true); err != nil {
			return err
		}
	}
	return setProject(dir.Name(), id, false)
}

// noQuotas reports whether err, which a quota call returned, means that the quotas of the filesystem are
// turned off, so that no limit applies.
func noQuotas(err error) bool {
	return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL)
}

// freeProject returns a quota project id, for a new limit, that no layer on the filesystem of fd uses. Two
// concurrent calls return different ids, except once in millions of calls.
func freeProject(fd int) (uint32, error) {
	for {
		id := firstProject + rand.Uint32N(projectCount)
		use, err := projquota.Usage(fd, id)
		if err != nil || use == (projquota.Use{ID: id}) {
			return id, err
		}
	}
}

// label gives a layer, with all its content, a project id that has no limit yet. A process
// killed meanwhile leaves the file labelling, and the next call starts again.
//
// Until label has finished, a rename from an unlabelled directory into a labelled one fails
// with EXDEV. label therefore begins with the work directory, from which the kernel renames
// files into the layer. The layer's own directory does not pass its project on, because the
// backend's notes in it do not belong to the fork.
func (p Projects) label(ctx context.Context, layer string, id uint32) error {
	if err := fault.Point(ctx, "label the layer"); err != nil {
		return err
	}
	note := p.Store.LayerPath(layer) + labelling
	if err := os.WriteFile(note, nil, 0o600); err != nil {
		return err
	}
	if err := setProject(p.Store.LayerPath(layer), id, false); err != nil {
		return err
	}
	if err := fault.Point(ctx, "label the files of the layer"); err != nil {
		return err
	}
	for _, dir := range []string{p.Store.WorkPath(layer), p.Store.TreePath(layer)} {
		if err := store.Walk(dir, labeller{ctx, id}.visit); err != nil {
			return err
		}
	}
	return os.Remove(note)
}

// setProject sets the quota project id of the directory dir, so that it counts for a fork's limit. With
// inherit, new entries in dir get the id too.
func setProject(dir string, id uint32, inherit bool) error {
	f, err := vfs.OpenDir(unix.AT_FDCWD, dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return store.PathError("give a project to", dir, projquota.Set(int(f.Fd()), id, inherit))
}

type labeller struct {
	ctx context.Context
	id  uint32
}

// visit gives a directory of the layer and then its files the quota project id, and returns the paths of the
// subdirectories to visit. name is the directory's path in the layer, and err the error of opening it. New
// files inherit the id of the directory.
func (m labeller) visit(name string, dir *os.File, err error) (dirs []string, _ error) {
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
		return nil, store.PathError("give a project to", dir.Name(), err)
	}
	err = vfs.EachEntry(fd, func(entry []byte, _ uint64, typ uint8) error {
		if store.IsDir(fd, entry, typ) {
			dirs = append(dirs, store.Join(name, entry))
			return nil
		}
		return m.file(fd, entry)
	})
	return dirs, err
}

// file sets the quota project id of the file called entry in the directory dir if it is a regular one; other
// files cannot be opened without side effects.
func (m labeller) file(dir int, entry []byte) error {
	st, err := vfs.Lstat(dir, string(entry))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !st.IsRegular() {
		return nil
	}
	if err != nil {
		return err
	}
	fd, err := unix.Openat(dir, string(entry), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOATIME|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT || err == unix.ELOOP {
		return nil // deleted or replaced meanwhile
	}
	if err != nil {
		return store.PathError("open", string(entry), err)
	}
	defer unix.Close(fd)
	return store.PathError("give a project to", string(entry), projquota.Set(fd, m.id, false))
}

// ProjectOf returns the quota project id of a layer, or 0 if it has none in snapfs's range.
func (p Projects) ProjectOf(layer string) uint32 {
	if p.Store.UserXattr || p.Store.Storage != nil {
		return 0
	}
	fd, err := unix.Open(p.Store.LayerPath(layer), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
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

// DropWork removes overlayfs's work directory of a frozen layer, which is not needed any more. If a project
// is charged for the directory, DropWork deletes it at once instead of moving it to the trash.
func (p Projects) DropWork(layer string) {
	if p.ProjectOf(layer) != 0 {
		_ = os.RemoveAll(p.Store.WorkPath(layer)) // otherwise Sweep does it
	}
	p.Store.ToTrash(p.Store.WorkPath(layer)) // a layer without a work directory is frozen
}

// unlimit removes the limits of the quota project to which the files of a layer belong, if there is one. A
// project id without limits has no effect, and is free again when the last file with it has gone.
func (p Projects) unlimit(layer string) error {
	if id := p.ProjectOf(layer); id != 0 {
		return p.UnlimitProject(layer, id)
	}
	return nil
}

// UnlimitProject removes the disk limits of the quota project id. layer is any layer that has that id: it
// leads to the filesystem with the quotas.
func (p Projects) UnlimitProject(layer string, id uint32) error {
	dir, err := os.Open(p.Store.LayerPath(layer))
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
	return store.PathError("lift the limit of", dir.Name(), err)
}

// FreeOfProject reports whether a layer that no record names has no quota project id, and so may be reused
// for another fork. If no fork uses the layer's project id any more, FreeOfProject removes the project's
// limit, which a killed RemoveFork has left. c holds the layers in use.
func (p Projects) FreeOfProject(c *store.LiveLayers, layer string) (bool, error) {
	id := p.ProjectOf(layer)
	if id == 0 {
		return true, nil
	}
	for upper := range c.Upper {
		if p.ProjectOf(upper) == id {
			return false, nil // the fork exists, and has sealed this layer
		}
	}
	return false, p.UnlimitProject(layer, id)
}
