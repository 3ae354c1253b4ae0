package plain

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

func (b *backend) Capture(ctx context.Context, tree snapshot.Tree, id snapshot.ID) (snapshot.Snapshot, error) {
	m := mark{kind: snapshots, id: string(id), tree: tree.Path, taken: vfs.Now()}
	if err := b.create(ctx, m, tree.Path); err != nil {
		return snapshot.Snapshot{}, fail("capturing", string(id), err)
	}
	return b.snapshotOf(m), nil
}

func (b *backend) Fork(ctx context.Context, from snapshot.ID, id snapshot.ForkID) (snapshot.Fork, error) {
	base, err := b.find(snapshots, string(from))
	if err != nil {
		return snapshot.Fork{}, fail("forking", string(from), err)
	}
	m := mark{kind: forks, id: string(id), tree: base.tree, base: string(from), taken: base.taken}
	if err := b.create(ctx, m, b.treePath(snapshots, string(from))); err != nil {
		return snapshot.Fork{}, fail("forking", string(id), err)
	}
	return b.forkOf(m), nil
}

func (b *backend) Seal(ctx context.Context, fork snapshot.ForkID, id snapshot.ID, _ snapshot.Use) (snapshot.Snapshot, error) {
	f, err := b.find(forks, string(fork))
	if err != nil {
		return snapshot.Snapshot{}, fail("sealing", string(fork), err)
	}
	m := mark{kind: snapshots, id: string(id), tree: f.tree, taken: vfs.Now()}
	if err := b.seal(ctx, f, m); err != nil {
		return snapshot.Snapshot{}, fail("sealing", string(fork), err)
	}
	return b.snapshotOf(m), nil
}

// seal makes the snapshot m by copying the fork f. It writes the fork's next description, with m as base,
// before it renames the snapshot into place, so that a full disk fails early.
func (b *backend) seal(ctx context.Context, f, m mark) error {
	if err := checkID(m.id); err != nil {
		return err
	}
	f.base, f.taken = m.id, m.taken
	home := b.path(forks, f.id)
	next := filepath.Join(home, "mark."+m.id)
	err := fault.Point(ctx, "write the fork's next mark")
	if err == nil {
		err = os.WriteFile(next, []byte(f.text()), 0o600)
	}
	if err == nil {
		err = b.create(ctx, m, b.treePath(forks, f.id))
	}
	if err != nil {
		_ = os.Remove(next) // otherwise it is removed with the fork
		return err
	}
	if err = fault.Point(ctx, "rename the fork's next mark"); err == nil {
		err = os.Rename(next, filepath.Join(home, "mark"))
	}
	if err != nil {
		_ = os.Remove(next)
		b.discard(snapshots, m.id)
	}
	return err
}

// create makes the snapshot or fork m as a copy of the tree at from. After an error there is none, except for
// an incomplete one that could not be deleted.
func (b *backend) create(ctx context.Context, m mark, from string) error {
	if err := checkID(m.id); err != nil {
		return err
	}
	src, err := openTree(from)
	if err != nil {
		return err
	}
	defer unix.Close(src)
	if err := b.begin(ctx, m); err != nil {
		return err
	}
	err = b.fill(ctx, m, src, from)
	if err == nil {
		err = b.publish(ctx, m)
	}
	if err != nil {
		b.discard(m.kind, m.id+part)
	}
	return err
}

// fill copies the open tree src, at the path from, into the incomplete snapshot or fork m. It fails if the
// tree was renamed meanwhile, because a sweep may have deleted a part of it.
func (b *backend) fill(ctx context.Context, m mark, src int, from string) error {
	if err := b.copyTree(ctx, src, from, b.path(m.kind, m.id+part)); err != nil {
		return err
	}
	var opened, there unix.Stat_t
	if err := unix.Fstat(src, &opened); err != nil {
		return &fs.PathError{Op: "stat", Path: from, Err: err}
	}
	if err := unix.Lstat(from, &there); err != nil {
		return &fs.PathError{Op: "stat", Path: from, Err: err}
	}
	if opened.Dev != there.Dev || opened.Ino != there.Ino {
		return because(errs.ErrNotFound, from, "the tree was replaced during the copy")
	}
	return nil
}

func (b *backend) Lookup(_ context.Context, id snapshot.ID) (snapshot.Snapshot, error) {
	m, err := b.find(snapshots, string(id))
	if err != nil {
		return snapshot.Snapshot{}, fail("looking up", string(id), err)
	}
	return b.snapshotOf(m), nil
}

func (b *backend) LookupFork(_ context.Context, id snapshot.ForkID) (snapshot.Fork, error) {
	m, err := b.find(forks, string(id))
	if err != nil {
		return snapshot.Fork{}, fail("looking up", string(id), err)
	}
	return b.forkOf(m), nil
}

func (b *backend) List(context.Context) ([]snapshot.ID, []snapshot.ForkID, error) {
	s, err := ids[snapshot.ID](b, snapshots)
	if err != nil {
		return nil, nil, fail("listing", "", err)
	}
	f, err := ids[snapshot.ForkID](b, forks)
	return s, f, fail("listing", "", err)
}

func (b *backend) Remove(ctx context.Context, id snapshot.ID) error {
	return fail("removing", string(id), b.remove(ctx, snapshots, string(id)))
}

func (b *backend) RemoveFork(ctx context.Context, id snapshot.ForkID) error {
	return fail("removing", string(id), b.remove(ctx, forks, string(id)))
}

// remove renames the snapshot or fork id, complete or not, into the trash. Sweep frees the space. A directory
// without the text file that describes it, or with an unreadable one, is ErrDenied: a person must examine it.
func (b *backend) remove(ctx context.Context, k kind, id string) error {
	if !snapshot.ValidID(id) {
		return nil // no entry of this backend has such a name
	}
	for _, name := range []string{id, id + part} {
		path := b.path(k, name)
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if _, err := b.read(k, id, name); err != nil {
			if _, gone := os.Lstat(path); errors.Is(gone, fs.ErrNotExist) {
				continue
			}
			return because(errs.ErrDenied, path, "the directory does not carry the mark of this backend")
		}
		if err := fault.Point(ctx, "rename into the trash"); err != nil {
			return err
		}
		err := renameNew(path, filepath.Join(b.trash(), uniqueName("removed-")))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// find reads the mark, the text file that describes the snapshot or fork id, which must be complete.
func (b *backend) find(k kind, id string) (mark, error) {
	if !snapshot.ValidID(id) {
		return mark{}, because(errs.ErrNotFound, "", "not a valid id")
	}
	m, err := b.read(k, id, id)
	if err != nil {
		return mark{}, err
	}
	if info, err := os.Lstat(b.treePath(k, id)); err != nil || !info.IsDir() {
		return mark{}, because(errs.ErrCorrupt, b.path(k, id), "the tree of this entry is missing")
	}
	return m, nil
}

func checkID(id string) error {
	if !snapshot.ValidID(id) {
		return because(errs.ErrNotSupported, "", "an id has 1 to 64 characters of a-z, 0-9 and -, and does not begin with -")
	}
	return nil
}
