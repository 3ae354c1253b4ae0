//go:build linux

package pool

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// An adoption deletes nothing. It renames the workspace's directory to <path>.snapfs-original,
// which stays until [Pool.DropOriginal]. It puts an empty directory in its place, with a note for a
// reader who finds the pool not mounted, and mounts the pool's subvolume on that directory. The
// record is written before each step. So the next use of the pool undoes a killed adoption, and
// completes or restarts a killed Unadopt:
//
//	imported → moving → adopted → leaving → returned → imported
//
// End the processes in the directory first: they stay in the original, and their writes do not
// reach the pool.

const (
	originalSuffix = ".snapfs-original"
	incomingSuffix = ".snapfs-incoming"
	noteName       = ".snapfs-adopted"
	noteText       = "The content of this directory is on a snapfs pool that is not mounted.\nThis command mounts it: snapfs pool status\n"
)

// Adopt moves the directory tree, a workspace, onto the pool's filesystem and mounts it at its path, so that
// snapshots of it need no import. It calls progress now and then while it copies. Errors: ErrNotFound;
// ErrExists (it is adopted, or <path>.snapfs-original exists); ErrBusy (it has a mount inside, or changed
// during each copy); ErrNoSpace, ErrDenied, ErrInterrupted. After an error the workspace is unchanged.
func (p *Pool) Adopt(ctx context.Context, tree string, progress func(Progress)) (Report, error) {
	unlock, err := p.lockTree(tree)
	if err != nil {
		return Report{}, failed("adopting", p.Name, tree, err)
	}
	defer unlock()
	report, err := p.adopt(ctx, tree, progress)
	return report, failed("adopting", p.Name, tree, err)
}

func (p *Pool) adopt(ctx context.Context, tree string, progress func(Progress)) (Report, error) {
	if r, err := p.record(tree); err == nil && r.State != imported {
		return Report{}, &errs.Error{Kind: errs.ErrExists, Err: errors.New("the workspace is on the pool already")}
	}
	if err := checkTree(tree); err != nil {
		return Report{}, err
	}
	if err := unmounted(tree); err != nil {
		return Report{}, err
	}
	original := tree + originalSuffix
	if _, err := os.Lstat(original); err == nil {
		return Report{}, &errs.Error{Kind: errs.ErrExists, Err: errors.New(original + " exists"), Hints: []string{"mv " + errs.Quoted(original) + " " + errs.Quoted(original+".old")}}
	}
	report, err := p.update(ctx, tree, progress)
	if err != nil {
		return report, err
	}
	if err := p.markPending(key(tree)); err != nil {
		return report, err
	}
	r := record{Path: tree, State: moving, Synced: time.Now(), Original: original}
	if err := p.saveRecord(r); err != nil {
		return report, err
	}
	if err := p.moveAside(ctx, r); err != nil {
		return report, errors.Join(err, p.undoAdopt(r))
	}
	r.State = adopted
	if err := p.saveRecord(r); err != nil {
		return report, errors.Join(err, p.undoAdopt(r))
	}
	err = fault.Point(ctx, "mount the workspace at its path")
	if err == nil {
		err = p.bind(tree)
	}
	if err != nil {
		return report, errors.Join(err, p.undoAdopt(r))
	}
	return report, p.clearPending(key(tree))
}

// unmounted returns ErrBusy if the directory tree is a mount point, or has one inside, because it can then
// not be renamed.
func unmounted(tree string) error {
	mounts, err := mount.List()
	for _, m := range mounts {
		if m.Path == tree || strings.HasPrefix(m.Path, tree+"/") {
			return busy("a filesystem is mounted at "+m.Path, "umount "+errs.Quoted(m.Path))
		}
	}
	return err
}

// moveAside does the last step of moving a workspace onto the pool (an adoption) before the mount: it renames
// the workspace's directory to r.Original, leaves a placeholder directory for the mount, and then copies the
// last changes to the pool. ErrBusy: the workspace changed during each of several copies.
func (p *Pool) moveAside(ctx context.Context, r record) error {
	if err := fault.Point(ctx, "rename the directory"); err != nil {
		return err
	}
	if err := vfs.RenameNew(r.Path, r.Original); err != nil {
		return err
	}
	if err := placeholder(r.Path); err != nil {
		return err
	}
	for range patience {
		report, changed, err := p.sync(ctx, r.Path, r.Original, nil)
		if err != nil {
			return err
		}
		if !changed && len(report.Unsettled) == 0 {
			return vfs.SyncFSOf(p.mnt())
		}
	}
	return busy("a process writes to the workspace", "fuser -vm "+errs.Quoted(r.Path))
}

func placeholder(path string) error {
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	return replace(filepath.Join(path, noteName), []byte(noteText))
}

// clearPlace removes the directory at path, an empty mount point, that the move of a workspace onto a pool
// left there, if there is one. ENOTEMPTY: a user has created files there; ErrBusy: something is mounted on
// it.
func clearPlace(path string) error {
	st, err := vfs.Lstat(unix.AT_FDCWD, path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.MountRoot {
		return busy("a filesystem is mounted at " + path)
	}
	left, _ := filepath.Glob(filepath.Join(path, noteName+"*"))
	for _, note := range left {
		if err := os.Remove(note); err != nil {
			return err
		}
	}
	return unix.Rmdir(path)
}

// undoAdopt undoes an interrupted adoption, the move of a workspace onto the pool: it renames the original
// directory back to its path, and records that the pool has only a copy of the workspace.
func (p *Pool) undoAdopt(r record) error {
	if _, err := os.Lstat(r.Original); err == nil {
		if err := clearPlace(r.Path); err != nil {
			return err
		}
		if err := vfs.RenameNew(r.Original, r.Path); err != nil {
			return err
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	r.State, r.Original = imported, ""
	return p.saveRecord(r)
}

// bind mounts the workspace's subvolume on the pool at the workspace's path tree, unless it is mounted there.
func (p *Pool) bind(tree string) error {
	if p.bound(tree) {
		return nil
	}
	m, err := mount.CloneTree(p.tree(tree))
	if err != nil {
		return err
	}
	defer m.Close()
	return mount.MoveMount(m, tree)
}

func (p *Pool) bound(tree string) bool {
	there, err1 := vfs.Lstat(unix.AT_FDCWD, tree)
	here, err2 := vfs.Lstat(unix.AT_FDCWD, p.tree(tree))
	return err1 == nil && err2 == nil && there.MountRoot && there.Ino == here.Ino && there.Dev == here.Dev
}

// recoverAll completes or undoes moves of workspaces onto the pool or back during which a process was killed,
// and mounts the workspaces whose files are on the pool (adopted ones). It skips a workspace on which another
// process is working.
func (p *Pool) recoverAll(ctx context.Context) error {
	records, err := p.records()
	if err != nil {
		return err
	}
	var failures []error
	for _, r := range records {
		unlock, err := tryLock(p.lockFile(r.Path))
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue
		}
		if err == nil {
			err = p.recoverOne(ctx, r.Path)
			unlock()
		}
		if err != nil {
			failures = append(failures, failed("mending", p.Name, r.Path, err))
		}
	}
	if len(failures) > 0 {
		return errors.Join(failures...)
	}
	if err := p.clearPending("mount"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// recoverOne completes or undoes an interrupted move of the workspace tree onto the pool or back, or mounts
// the workspace if its files are on the pool (adopted). The caller holds the lock of that workspace.
func (p *Pool) recoverOne(ctx context.Context, tree string) error {
	r, err := p.record(tree)
	if err == nil {
		switch r.State {
		case moving:
			err = p.undoAdopt(r)
		case adopted:
			err = p.bind(r.Path)
		case leaving:
			err = p.undoUnadopt(r)
		case leftOff:
			err = p.finishUnadopt(ctx, r)
		}
	}
	if err == nil {
		err = p.clearPending(key(tree))
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return err
}

// DropOriginal deletes the directory <path>.snapfs-original, to which the adoption of the workspace tree
// renamed the original. Errors: ErrNotFound (not adopted, or the original was deleted before).
func (p *Pool) DropOriginal(_ context.Context, tree string) error {
	unlock, err := p.lockTree(tree)
	if err != nil {
		return failed("dropping the original", p.Name, tree, err)
	}
	defer unlock()
	r, err := p.record(tree)
	if err == nil && (r.State != adopted || r.Original == "" || !p.bound(tree)) {
		err = os.ErrNotExist
	}
	if err == nil {
		err = os.RemoveAll(r.Original)
	}
	if err == nil {
		r.Original = ""
		err = p.saveRecord(r)
	}
	return failed("dropping the original", p.Name, tree, err)
}
