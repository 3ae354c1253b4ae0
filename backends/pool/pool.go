//go:build linux

package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/loopdev"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/undo"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// least is the smallest size of a pool, in bytes, that [Create] accepts for the btrfs filesystem in it; a
// smaller one is ErrNotSupported.
const least snapshot.Bytes = 256 << 20

const format = 1

// Main is the name of the pool (a btrfs in a file) that is used if the user names none.
const Main = "main"

// A Pool is a mounted btrfs in a file, which holds copies of workspaces and their snapshots and forks.
// [Create] and [Open] make one.
type Pool struct {
	// Name is the pool's name, Dir its directory.
	Name, Dir string
}

type poolFile struct {
	Format int            `json:"format"`
	Size   snapshot.Bytes `json:"size"`
	UUID   string         `json:"uuid"`
}

func (p *Pool) mnt() string   { return filepath.Join(p.Dir, "mnt") }
func (p *Pool) image() string { return filepath.Join(p.Dir, "image") }
func (p *Pool) file() string  { return filepath.Join(p.Dir, "pool.json") }

// Mount returns the directory at which the pool's btrfs filesystem is mounted.
func (p *Pool) Mount() string { return p.mnt() }

// Layers returns the directory on the pool for overlay layers of trees on other filesystems, see package
// overlayquota. Its users create it.
func (p *Pool) Layers() string { return filepath.Join(p.mnt(), "layers") }

// CanLimit returns the reason why the disk space of forks on the pool cannot be limited, or nil. Errors:
// ErrNotSupported.
func (p *Pool) CanLimit() error {
	top, err := os.Open(p.mnt())
	if err != nil {
		return failed("limiting", p.Name, p.mnt(), err)
	}
	defer top.Close()
	mode, err := btrfs.QuotaModeOf(int(top.Fd()))
	switch {
	case err != nil:
	case btrfs.MayLimit(int(top.Fd())) != nil:
		err = unsupported("only root can set a limit on btrfs", "sudo snapfs …")
	case mode == btrfs.QuotaFull:
		err = unsupported("full quota groups are on; with them the removal of a snapshot can block the filesystem for minutes",
			"btrfs quota disable "+errs.Quoted(p.mnt()))
	case mode == btrfs.QuotaOff && !btrfs.SimpleQuota():
		err = unsupported("this kernel has no simple quotas, which need Linux 6.7", "snapfs doctor")
	}
	return failed("limiting", p.Name, p.mnt(), err)
}

// Create makes and mounts a pool called name, in a subdirectory of dir, of at most size bytes. Its file takes
// only the space of the stored data. Atomic: Open finds the pool once it is complete. Cost: some 100 ms.
// Errors: ErrExists, ErrDenied (not root), ErrNoSpace, ErrNotSupported (no btrfs, no loop devices, or a size
// below 256 MiB).
func Create(ctx context.Context, dir, name string, size snapshot.Bytes) (p *Pool, err error) {
	fail := func(err error) (*Pool, error) { return nil, failed("creating the pool", name, "", err) }
	switch {
	case !snapshot.ValidID(name):
		return fail(unsupported(fmt.Sprintf("%q is not a valid name of a pool", name)))
	case size < least:
		return fail(unsupported(fmt.Sprintf("%v is too small, a pool needs %v", size, least), "snapfs pool create --size 20G"))
	}
	if err := needRoot(); err != nil {
		return fail(err)
	}
	removeIncomplete(dir)
	p = &Pool{Name: name, Dir: filepath.Join(dir, name)}
	if _, err := os.Lstat(p.Dir); err == nil {
		return fail(os.ErrExist)
	}
	var back undo.Stack
	defer back.UndoInto(&err)
	half := filepath.Join(dir, incomplete+proc.Name())
	back.Push("remove "+half, func() error { return os.RemoveAll(half) })
	if err := build(ctx, half, size); err != nil {
		return fail(err)
	}
	if err := fault.Point(ctx, "name the pool"); err != nil {
		return fail(err)
	}
	if err := vfs.RenameNew(half, p.Dir); err != nil {
		return fail(err)
	}
	back.Release()
	return Open(ctx, dir, name)
}

// build makes all files of a pool in the directory half, which Create then renames to the pool's name.
func build(ctx context.Context, half string, size snapshot.Bytes) error {
	if err := fault.Point(ctx, "make the image"); err != nil {
		return err
	}
	p := &Pool{Dir: half}
	if err := makeIncomplete(half); err != nil {
		return err
	}
	for _, d := range []string{p.mnt(), filepath.Join(half, "trees"), filepath.Join(half, "pending")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
	}
	image, err := os.OpenFile(p.image(), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer image.Close()
	loopdev.SetNoCopy(image)
	if err := image.Truncate(int64(size)); err != nil {
		return err
	}
	if err := p.format(ctx); err != nil {
		return err
	}
	if err := p.mount(ctx); err != nil {
		return err
	}
	uuid, err := p.prepare()
	if e := mount.Unmount(p.mnt()); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return writeJSON(p.file(), poolFile{Format: format, Size: size, UUID: uuid})
}

// makeIncomplete makes half, the directory of a pool that is being made, and its parent. The removal of the
// last pool may delete the parent at any time, also between the two steps, so that it tries again.
func makeIncomplete(half string) (err error) {
	for range 100 {
		if err = os.MkdirAll(filepath.Dir(half), 0o700); err == nil {
			err = os.Mkdir(half, 0o700)
		}
		if !errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	return err
}

// format makes the btrfs filesystem in the pool's file. It retries, because mkfs.btrfs examines all mounted
// loop devices and fails when one of them disappears meanwhile.
func (p *Pool) format(ctx context.Context) error {
	for tries := 0; ; tries++ {
		_, err := run.Output(ctx, "mkfs.btrfs", "-q", "-f", "-L", "snapfs", p.image())
		var failed *run.Error
		if err == nil || tries == 3 || !errors.As(err, &failed) || ctx.Err() != nil {
			return err
		}
	}
}

// prepare makes the directories on a pool's new filesystem, turns on simple quotas if the kernel has them, and
// returns the filesystem's UUID.
func (p *Pool) prepare() (string, error) {
	if err := os.MkdirAll(filepath.Join(p.mnt(), "trees"), 0o700); err != nil {
		return "", err
	}
	top, err := os.Open(p.mnt())
	if err != nil {
		return "", err
	}
	defer top.Close()
	if err := p.makeLayers(int(top.Fd())); err != nil {
		return "", err
	}
	err = btrfs.SetQuota(int(top.Fd()), btrfs.QuotaSimple)
	if err != nil && err != unix.EINVAL && err != unix.EOPNOTSUPP { // no simple quotas before Linux 6.7
		return "", err
	}
	id, err := btrfs.FilesystemUUID(int(top.Fd()))
	return id.String(), err
}

// Open returns the pool called name in dir, mounted. After a reboot it mounts the pool, and the workspaces
// whose files are on the pool (adopted ones) at their paths, and it completes or undoes interrupted
// operations. Cost if the pool is mounted: some ten microseconds. Errors: ErrNotFound, ErrDenied (not root),
// ErrCorrupt, ErrNotSupported (a newer format).
func Open(ctx context.Context, dir, name string) (*Pool, error) {
	p := &Pool{Name: name, Dir: filepath.Join(dir, name)}
	err := p.ensure(ctx)
	if err != nil {
		return nil, failed("opening the pool", name, "", err)
	}
	return p, nil
}

func (p *Pool) ensure(ctx context.Context) error {
	if !snapshot.ValidID(p.Name) {
		return os.ErrNotExist
	}
	var f poolFile
	if err := readJSON(p.file(), &f); err != nil {
		return err
	}
	if f.Format > format {
		return unsupported(fmt.Sprintf("the pool has format %d, and this snapfs supports only %d", f.Format, format))
	}
	if p.mounted() && p.nothingPending() {
		return nil
	}
	if err := needRoot(); err != nil {
		return err
	}
	unlock, err := lock(filepath.Join(p.Dir, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Lstat(p.file()); err != nil { // removed meanwhile
		return err
	}
	if !p.mounted() {
		if err := p.markPending("mount"); err != nil {
			return err
		}
		if err := p.mount(ctx); err != nil {
			return err
		}
	}
	return p.recoverAll(ctx)
}

// markPending records on disk that an operation on the pool, such as the move of a workspace onto it, starts;
// what names it. If this process is killed, a later command completes or undoes the operation.
func (p *Pool) markPending(what string) error {
	return os.WriteFile(filepath.Join(p.Dir, "pending", what), nil, 0o600)
}

func (p *Pool) clearPending(what string) error {
	return os.Remove(filepath.Join(p.Dir, "pending", what))
}

func (p *Pool) nothingPending() bool {
	pending, err := os.ReadDir(filepath.Join(p.Dir, "pending"))
	return err == nil && len(pending) == 0
}

// mounted reports whether a btrfs is mounted at the pool's mount point. After a reboot it is not, and [Open]
// mounts it.
func (p *Pool) mounted() bool {
	st, err := vfs.Lstat(unix.AT_FDCWD, p.mnt())
	if err != nil || st.Ino != btrfs.RootInode || !st.MountRoot {
		return false
	}
	fs, err := mount.FilesystemOf(p.mnt())
	return err == nil && fs.Type == "btrfs"
}

func (p *Pool) mount(ctx context.Context) error {
	image, err := os.OpenFile(p.image(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer image.Close()
	if err := fault.Point(ctx, "attach a loop device"); err != nil {
		return err
	}
	loop, err := loopdev.Attach(image)
	if err != nil {
		return err
	}
	defer loop.Close() // the mount keeps the device attached
	c, err := mount.Fsopen("btrfs")
	if err != nil {
		return err
	}
	defer c.Close()
	if err := errors.Join(c.Set("source", loop.Name()), c.SetFlag("user_subvol_rm_allowed")); err != nil {
		return err
	}
	m, err := c.Mount(unix.MOUNT_ATTR_NOATIME)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := fault.Point(ctx, "mount the pool"); err != nil {
		return err
	}
	return mount.MoveMount(m, p.mnt())
}

// List returns the sorted names of the pools in dir, each of which has a directory there.
func List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && snapshot.ValidID(e.Name()) {
			names = append(names, e.Name())
		}
	}
	if err != nil {
		return nil, failed("listing pools", "", dir, err)
	}
	return names, nil
}

// Grow increases the size limit of the pool, a btrfs in a sparse file, to size, at once; a pool never
// shrinks. Errors: ErrNotSupported (size is smaller than the present size), ErrNoSpace.
func (p *Pool) Grow(ctx context.Context, size snapshot.Bytes) error {
	return failed("growing the pool", p.Name, "", p.grow(ctx, size))
}

func (p *Pool) grow(ctx context.Context, size snapshot.Bytes) error {
	unlock, err := lock(filepath.Join(p.Dir, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	var f poolFile
	if err := readJSON(p.file(), &f); err != nil {
		return err
	}
	if size < f.Size {
		return unsupported(fmt.Sprintf("the pool has %v, and cannot shrink", f.Size))
	}
	if err := fault.Point(ctx, "extend the image"); err != nil {
		return err
	}
	if err := os.Truncate(p.image(), int64(size)); err != nil {
		return err
	}
	source, err := mountSource(p.mnt())
	if err != nil {
		return err
	}
	if err := loopdev.Refresh(source); err != nil {
		return err
	}
	top, err := os.Open(p.mnt())
	if err != nil {
		return err
	}
	defer top.Close()
	if err := fault.Point(ctx, "extend the filesystem"); err != nil {
		return err
	}
	if err := btrfs.Grow(int(top.Fd())); err != nil {
		return err
	}
	f.Size = size
	return writeJSON(p.file(), f)
}

func mountSource(path string) (string, error) {
	mounts, err := mount.List()
	for _, m := range mounts {
		if m.Path == path {
			return m.Source, nil
		}
	}
	if err == nil {
		err = os.ErrNotExist
	}
	return "", err
}

// Remove deletes the pool called name in dir with all copies of workspaces. Errors: ErrNotFound; ErrBusy (the
// pool has a snapshot, a fork or a workspace that was moved onto it, or a process uses it).
func Remove(ctx context.Context, dir, name string) error {
	p, err := Open(ctx, dir, name)
	if err == nil {
		err = failed("removing the pool", name, "", p.remove(ctx))
	}
	return err
}

// unmountPatience is how long the removal of a pool waits until no process uses its mount. After that the
// removal fails with ErrBusy.
const unmountPatience = 2 * time.Second

func (p *Pool) remove(ctx context.Context) error {
	trees, err := p.records()
	if err != nil {
		return err
	}
	for _, t := range trees {
		if t.State != imported {
			return busy("the pool has the adopted workspace "+t.Path, "snapfs pool unadopt "+errs.Quoted(t.Path))
		}
	}
	used, err := p.users()
	if err != nil {
		return err
	}
	if len(used) > 0 {
		return busy("the pool has "+strings.Join(used, ", "), "snapfs rm …", "snapfs gc")
	}
	if err := fault.Point(ctx, "unmount the pool"); err != nil {
		return err
	}
	// Until the pool has gone nobody mounts it again.
	unlock, err := lock(filepath.Join(p.Dir, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	// A garbage collection, which the removal of a sandbox starts, or the end of a sandbox may use it for a moment.
	late := time.Now().Add(unmountPatience)
	err = poll.Until(ctx, time.Millisecond, 50*time.Millisecond, func() (bool, error) {
		err := unix.Unmount(p.mnt(), unix.UMOUNT_NOFOLLOW)
		if err == unix.EBUSY && time.Now().After(late) {
			return false, busy("a process uses the pool", "fuser -vm "+errs.Quoted(p.mnt()))
		}
		if err == unix.EBUSY {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return err
	}
	gone := filepath.Join(filepath.Dir(p.Dir), incomplete+proc.Name())
	if err := os.Rename(p.Dir, gone); err != nil {
		return err
	}
	if err := os.RemoveAll(gone); err != nil {
		return err
	}
	_ = os.Remove(filepath.Dir(p.Dir)) // fails while there are other pools
	return nil
}

// users lists what prevents the removal of the pool, such as "3 forks" and "1 snapshot".
func (p *Pool) users() ([]string, error) {
	var used []string
	for _, kind := range []string{"snapshots", "forks"} {
		all, err := filepath.Glob(filepath.Join(p.mnt(), ".snapfs", "*", kind, "*"))
		if err != nil {
			return nil, err
		}
		more, err := filepath.Glob(filepath.Join(p.Layers(), "*", kind, "*"))
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
		if len(all) > 0 {
			used = append(used, fmt.Sprintf("%d %s", len(all), kind))
		}
	}
	return used, nil
}

func writeJSON(path string, v any) error {
	text, err := exactjson.EncodeIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return replace(path, append(text, '\n'))
}

func readJSON(path string, v any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := exactjson.Decode(text, v); err != nil {
		return &errs.Error{Kind: errs.ErrCorrupt, Err: fmt.Errorf("%s: %w", path, err)}
	}
	return nil
}
