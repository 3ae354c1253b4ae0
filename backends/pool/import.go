//go:build linux

package pool

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Import makes the pool's copy of the workspace tree equal to it. The first call copies everything; a later
// call copies the changes, after a walk of the workspace's directories. For a workspace that was moved onto
// the pool (adopted) it does nothing. It may be killed: the next import repairs the copy.
//
// Import calls progress now and then, from several goroutines but never concurrently; progress may be nil.
// Errors: ErrNotFound, ErrNotSupported (not a directory), ErrNoSpace (of the pool or of the disk below it),
// ErrDenied, ErrInterrupted.
func (p *Pool) Import(ctx context.Context, tree string, progress func(Progress)) (Report, error) {
	unlock, err := p.lockTree(tree)
	if err != nil {
		return Report{}, failed("importing", p.Name, tree, err)
	}
	defer unlock()
	report, err := p.update(ctx, tree, progress)
	return report, failed("importing", p.Name, tree, err)
}

// update does the work of [Pool.Import]: it makes the pool's copy of the workspace equal to it. The caller
// holds the tree's lock. For a workspace that is itself on the pool (adopted) it does nothing.
func (p *Pool) update(ctx context.Context, tree string, progress func(Progress)) (Report, error) {
	r, err := p.record(tree)
	switch {
	case err == nil && r.State != imported:
		return Report{}, nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return Report{}, err
	}
	first := err != nil
	if err := checkTree(tree); err != nil {
		return Report{}, err
	}
	if err := p.prepareTree(ctx, tree); err != nil {
		return Report{}, err
	}
	if err := p.hostHasRoom(0); err != nil {
		return Report{}, err
	}
	began := time.Now()
	report, changed, err := p.sync(ctx, tree, tree, progress)
	if err != nil || !changed && !first {
		return report, err
	}
	return report, p.saveRecord(record{Path: tree, State: imported, Synced: began})
}

func checkTree(tree string) error {
	if !filepath.IsAbs(tree) || filepath.Clean(tree) != tree {
		return unsupported("not an absolute, clean path")
	}
	st, err := vfs.Lstat(unix.AT_FDCWD, tree)
	if err == nil && !st.IsDir() {
		err = unsupported("not a directory")
	}
	return err
}

// prepareTree makes the pool's btrfs subvolume for the copy of the workspace tree, if it does not exist.
func (p *Pool) prepareTree(ctx context.Context, tree string) error {
	home := p.home(tree)
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	if _, err := os.Lstat(p.tree(tree)); err == nil {
		return nil
	}
	dir, err := os.Open(home)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := fault.Point(ctx, "make a subvolume for the workspace"); err != nil {
		return err
	}
	return btrfs.Create(int(dir.Fd()), filepath.Base(p.tree(tree)))
}

// sync makes the pool's copy of the workspace tree equal to the directory from, and reports whether anything
// changed. from is another path than tree while an adoption is renaming the workspace.
func (p *Pool) sync(ctx context.Context, tree, from string, progress func(Progress)) (Report, bool, error) {
	mark := filepath.Join(p.home(tree), "updating")
	file := filepath.Join(p.home(tree), "manifest")
	_, err := os.Lstat(mark)
	s := syncer{progress: progress, doubt: err == nil, hasRoom: p.hostHasRoom}
	s.before = func() error { return os.WriteFile(mark, nil, 0o600) }
	if s.old, err = readManifest(ctx, file); err != nil {
		s.old, s.doubt = nil, true // a manifest only saves time
	}
	if s.skip, err = p.ownDirectory(); err != nil {
		return Report{}, false, err
	}
	if err := s.between(ctx, from, p.tree(tree)); err != nil {
		return s.report, true, err
	}
	changed := s.changed || s.doubt
	if !changed {
		return s.report, false, nil
	}
	if err := vfs.SyncFSOf(p.mnt()); err != nil {
		return s.report, true, err
	}
	if err := fault.Point(ctx, "write the manifest"); err != nil {
		return s.report, true, err
	}
	if err := replace(file, s.blocks); err != nil {
		return s.report, true, err
	}
	if err := os.Remove(mark); err != nil && !errors.Is(err, os.ErrNotExist) {
		return s.report, true, err
	}
	return s.report, true, nil
}

// ownDirectory returns a function that recognises the pool's own directory by its attributes. If that is
// inside a workspace, it is not copied with the workspace.
func (p *Pool) ownDirectory() (func(*vfs.Stat) bool, error) {
	st, err := vfs.Lstat(unix.AT_FDCWD, p.Dir)
	return func(x *vfs.Stat) bool { return x.Ino == st.Ino && x.Dev == st.Dev }, err
}

// between makes the directory at the path to equal to the directory at from. One is a workspace and the other
// its copy on the pool; in which direction depends on whether the workspace is imported or leaves the pool.
func (s *syncer) between(ctx context.Context, from, to string) error {
	var err error
	if s.src, err = vfs.OpenDir(unix.AT_FDCWD, from); err != nil {
		return err
	}
	defer s.src.Close()
	if s.dst, err = vfs.OpenDir(unix.AT_FDCWD, to); err != nil {
		return err
	}
	defer s.dst.Close()
	return s.run(ctx)
}
