//go:build linux

package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/snapfs/snapfs/backends/all"
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/run"
)

// plainLargest is the largest tree, in files, with which the backend plain is measured, because it copies
// every file.
const plainLargest = 10_000

// settings returns all settings (backend, user and filesystem) that this user can measure. One that this
// machine cannot measure holds the reason as Error.
func (l *lab) settings() []setting {
	disk := filesystemName(l.dir)
	if os.Geteuid() != 0 {
		return []setting{
			l.setting("overlay, user, "+disk, "overlay", l.dir, os.Geteuid()),
			l.unable("overlay, root, "+disk, errors.New("needs root")),
			l.unable("btrfs", errors.New("needs root, to mount an image")),
		}
	}
	list := []setting{l.setting("overlay, root, "+disk, "overlay", l.dir, 0), l.setting("overlay, user, "+disk, "overlay", l.dir, userID)}
	if l.noBtrfs != nil {
		list = append(list, l.unable("btrfs, root, loop", l.noBtrfs), l.unable("btrfs, user, loop", l.noBtrfs))
	} else {
		list = append(list, l.setting("btrfs, root, loop", "btrfs", l.btrfs, 0), l.setting("btrfs, user, loop", "btrfs", l.btrfs, userID))
	}
	plain := l.setting("plain, root, "+disk, "plain", l.dir, 0)
	plain.Largest, plain.Alone = plainLargest, true
	return append(list, plain)
}

func (l *lab) setting(name, driver, place string, uid int) setting {
	who := "root"
	if uid != 0 {
		who = "user"
	}
	s := setting{Name: name, Driver: driver, User: uid, State: filepath.Join(l.dir, "state-"+who), Dir: filepath.Join(place, who)}
	for _, dir := range []string{s.State, s.Dir} {
		err := l.makeDir(dir, place)
		if err == nil && uid != os.Geteuid() {
			err = os.Chown(dir, uid, uid)
		}
		if err != nil && !errors.Is(err, os.ErrExist) {
			s.Error = err.Error()
		}
	}
	return s
}

// makeDir makes the directory dir of a setting on the filesystem at place. On btrfs an ordinary user's
// directory is a mounted subvolume, as a home directory may be.
func (l *lab) makeDir(dir, place string) error {
	if l.btrfs == "" || place != l.btrfs || filepath.Base(dir) != "user" {
		return os.Mkdir(dir, 0o755)
	}
	if _, err := os.Stat(dir); err == nil {
		return os.ErrExist
	}
	parent, err := os.Open(place)
	if err != nil {
		return err
	}
	defer parent.Close()
	l.back.Push("unmount "+dir, func() error { return mount.Unmount(dir) })
	return makeSubvolume(int(parent.Fd()), dir)
}

func (l *lab) unable(name string, err error) setting { return setting{Name: name, Error: err.Error()} }

func filesystemName(dir string) string {
	fs, err := mount.FilesystemOf(dir)
	if err != nil {
		return err.Error()
	}
	return fs.Type
}

func ownerOf(st os.FileInfo) int {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid)
	}
	return -1
}

// open opens an engine on a state directory with the same options as the program snapfs.
func (l *lab) open(ctx context.Context, state string) (*engine.Engine, error) {
	return engine.Open(ctx, engine.Config{
		State: state, Drivers: all.Drivers,
		Supervisor: []string{l.Program, "keeper"}, Sweeper: []string{l.Program, "sweeper"},
	})
}

// removeLab removes the directory dir of a benchmark with all sandboxes of its state directories.
func removeLab(ctx context.Context, dir string) error {
	var errs []error
	states, _ := filepath.Glob(dir + "/state-*") // the pattern is a good one
	for _, state := range states {
		errs = append(errs, clearAs(ctx, filepath.Join(dir, selfName), state))
	}
	return errors.Join(append(errs, removeTree(dir))...)
}

// clearAs runs [Clear] in a process of the state directory's owner, because snapfs opens no other user's
// state directory. self is the path of snapfs-bench.
func clearAs(ctx context.Context, self, state string) error {
	st, err := os.Stat(state)
	if err != nil {
		return err
	}
	uid := ownerOf(st)
	if uid == os.Geteuid() {
		return Clear(ctx, state)
	}
	return run.Run(ctx, run.Program{
		Name: self, Args: []string{"--role", RoleClear, "--lab", state},
		Env: []string{searchPath()}, Dir: "/", As: &run.IDs{UID: uid, GID: uid},
	})
}

// Clear ends the processes and removes the sandboxes of a state directory, after its user's measurements.
func Clear(ctx context.Context, state string) error {
	if _, absent := os.Stat(filepath.Join(state, "format")); absent != nil {
		return nil //nolint:nilerr // none was ever made
	}
	e, err := engine.Open(ctx, engine.Config{State: state, Drivers: all.Drivers})
	if err != nil {
		return err
	}
	names, err := e.Names()
	for _, name := range names {
		err = errors.Join(err, e.Remove(ctx, name))
	}
	return err
}

// removeTree removes the directory dir, and retries while a background cleaner still works in it.
func removeTree(dir string) (err error) {
	for range 50 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		pause()
	}
	return err
}
