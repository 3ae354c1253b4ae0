//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/bench/copies"
	"github.com/snapfs/snapfs/internal/loopdev"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/undo"
)

const (
	scratch   = "/var/tmp"
	labPrefix = "snapfs-bench-"
	// programName and selfName are the file names of the copies of snapfs and snapfs-bench in the benchmark's
	// directory.
	programName = "snapfs"
	selfName    = "snapfs-bench"
	// userID is the user id of measurements as an ordinary user. No account has it, because Debian assigns
	// none above 59999.
	userID = 64101
	// imageSize is the size in bytes of the sparse filesystem images for measurements, 48 GiB. A tree of a
	// million files takes 3 GiB.
	imageSize = 48 << 30
	// memorySize is the size in bytes of the filesystem image in memory (Options.InMemory), 16 GiB.
	memorySize = 16 << 30
)

// A lab holds the directory, the filesystems and the programs that the measurements of one run use. [openLab]
// makes it.
type lab struct {
	Options
	dir  string
	back undo.Stack
	// btrfs is the root of a mounted btrfs; "" where there is none, for the reason noBtrfs.
	btrfs   string
	noBtrfs error
}

// A setting is a backend, a user and a filesystem with which everything is measured: one column of the
// published results.
type setting struct {
	// Name is backend, user and filesystem as text.
	Name string
	// Driver is the backend's name; "" chooses the best that works.
	Driver string
	// Dir holds the trees and belongs to the user; State is the state directory.
	Dir, State string
	// User is the id to measure as.
	User int
	// Largest is the largest tree worth measuring, 0 for all.
	Largest int
	// Alone measures the backend's own methods, without an engine.
	Alone bool
	// Error is the reason why the setting cannot be measured here.
	Error string
}

// openLab makes the directory and filesystems for measurements, and copies snapfs and snapfs-bench to where
// every user can run them. l.back removes all of it.
func openLab(ctx context.Context, o Options) (l *lab, err error) {
	if err := sweepLabs(ctx); err != nil {
		return nil, err
	}
	opened := &lab{Options: o, dir: o.Lab}
	l = opened
	defer func() {
		if err != nil {
			opened.back.UndoInto(&err)
		}
	}()
	if l.dir == "" {
		if l.dir, err = labDir(); err != nil {
			return nil, err
		}
	}
	l.back.Push("remove "+l.dir, func() error { return removeLab(context.WithoutCancel(ctx), opened.dir) })
	if o.InMemory {
		if err := l.mountMemory(ctx); err != nil {
			return nil, err
		}
	}
	if err := os.Chmod(l.dir, 0o755); err != nil {
		return nil, err
	}
	l.Program, l.Self = filepath.Join(l.dir, programName), filepath.Join(l.dir, selfName)
	if err := errors.Join(copies.Program(l.Program, o.Program), copies.Program(l.Self, o.Self)); err != nil {
		return nil, err
	}
	// snapfs looks for these beside itself.
	for name, needed := range map[string]bool{"snapfs-fuse": true, "snapfs-serve": o.wants(kindAPI), "snapfs-edge": o.wants(kindProxy)} {
		if !needed {
			continue
		}
		if err := copies.Program(filepath.Join(l.dir, name), filepath.Join(filepath.Dir(o.Program), name)); err != nil {
			return nil, err
		}
	}
	l.noBtrfs = l.mountBtrfs(ctx)
	return l, ctx.Err()
}

// labDir makes the directory for measurements. Its name identifies this process, so that a later run can
// remove it after a kill.
func labDir() (string, error) {
	self, err := proc.Self()
	if err != nil {
		return "", err
	}
	dir := fmt.Sprintf("%s/%s%d-%d", scratch, labPrefix, self.PID, self.Start)
	return dir, os.Mkdir(dir, 0o755)
}

// sweepLabs removes the directories, with their mounts, that killed runs of the benchmarks left.
func sweepLabs(ctx context.Context) error {
	left, err := filepath.Glob(scratch + "/" + labPrefix + "*-*")
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range left {
		var p proc.Process
		_, serr := fmt.Sscanf(strings.TrimPrefix(filepath.Base(dir), labPrefix), "%d-%d", &p.PID, &p.Start)
		if st, err := os.Stat(dir); serr == nil && err == nil && ownerOf(st) == os.Geteuid() && !proc.Alive(p) {
			errs = append(errs, removeLab(ctx, dir))
		}
	}
	return errors.Join(errs...)
}

// mountMemory mounts an ext4 from an image in memory and makes it the directory for measurements, so that no
// disk slows them.
func (l *lab) mountMemory(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("a filesystem in memory needs root, to mount it")
	}
	dir := filepath.Join(l.dir, "memory")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := mountFS("tmpfs", dir, func(c *mount.FSContext) error { return c.Set("size", "75%") }); err != nil {
		return err
	}
	unmount := func() error { return mount.Unmount(dir) }
	l.back.Push("unmount the memory of "+dir, unmount)
	image, err := os.Create(dir + "/image")
	if err != nil {
		return err
	}
	defer image.Close()
	if err := image.Truncate(memorySize); err != nil {
		return err
	}
	// All of it is made now, and not while something is measured.
	if _, err := run.Output(ctx, "mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", image.Name()); err != nil {
		return err
	}
	if err := mountImage("ext4", image, dir); err != nil {
		return err
	}
	l.back.Push("unmount "+dir, unmount)
	l.dir = dir
	return nil
}

// mountBtrfs makes a btrfs in a sparse image and mounts it for measurements. The image is unlinked before,
// and the loop device detaches itself, so that neither outlives the mount.
func (l *lab) mountBtrfs(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("needs root, to mount an image")
	}
	image, err := os.CreateTemp(l.dir, "image")
	if err != nil {
		return err
	}
	defer image.Close()
	defer os.Remove(image.Name()) //nolint:errcheck // it goes with the directory at the latest
	if err := image.Truncate(imageSize); err != nil {
		return err
	}
	if _, err := run.Output(ctx, "mkfs.btrfs", "-q", "-f", image.Name()); err != nil {
		return err
	}
	dir := filepath.Join(l.dir, "btrfs")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := mountImage("btrfs", image, dir, "user_subvol_rm_allowed"); err != nil {
		return err
	}
	l.back.Push("unmount "+dir, func() error { return mount.Unmount(dir) })
	// Each user that has trees there keeps a directory of its own beside them.
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		return err
	}
	l.btrfs = dir
	return nil
}

func mountImage(fs string, image *os.File, dir string, flags ...string) error {
	loop, err := loopdev.Attach(image)
	if err != nil {
		return err
	}
	defer loop.Close() // the mount holds it from then on
	return mountFS(fs, dir, func(c *mount.FSContext) error {
		err := c.Set("source", loop.Name())
		for _, f := range flags {
			err = errors.Join(err, c.SetFlag(f))
		}
		return err
	})
}

// mountFS mounts a filesystem of type fs on dir; set sets its mount options.
func mountFS(fs, dir string, set func(*mount.FSContext) error) error {
	c, err := mount.Fsopen(fs)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := set(c); err != nil {
		return err
	}
	mnt, err := c.Mount(0)
	if err != nil {
		return err
	}
	defer mnt.Close()
	return mount.MoveMount(mnt, dir)
}
