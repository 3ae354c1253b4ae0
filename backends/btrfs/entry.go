//go:build linux

package btrfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// An entry is the directory of one snapshot or fork while it is being made.
type entry struct {
	room room
	path string // in the room
	fd   int
}

// newborn begins the names of what is in the trash only until it is whole.
const newborn = "new."

// begin makes the directory and the mark of an entry; it is born in the trash,
// so that it has its mark when it gets its name. It answers to that only when
// it has a tree. ErrExists.
func (r room) begin(ctx context.Context, kind, id string, m mark) (*entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	born := trash + "/" + newborn + unique()
	if err := fault.Point(ctx, "make a directory for it"); err != nil {
		return nil, err
	}
	if err := unix.Mkdirat(r.fd, born, 0o700); err != nil {
		return nil, &os.PathError{Op: "make", Path: born, Err: err}
	}
	e := &entry{room: r, path: born, fd: -1}
	err := fault.Point(ctx, "write its mark")
	if err == nil {
		err = r.writeMark(born+"/"+markName, m)
	}
	if err == nil {
		e.fd, err = r.open(born)
	}
	if err == nil {
		err = fault.Point(ctx, "give it its name")
	}
	if err == nil {
		err = renameNew(r.fd, born, kind+"/"+id)
	}
	if err != nil {
		return nil, errors.Join(err, e.giveUp())
	}
	e.path = kind + "/" + id
	return e, nil
}

func renameNew(dir int, from, to string) error {
	switch err := unix.Renameat2(dir, from, dir, to, unix.RENAME_NOREPLACE); err {
	case nil:
		return nil
	case unix.EEXIST:
		return &problem{kind: errs.ErrExists, why: "the id is taken"}
	default:
		return &os.PathError{Op: "rename", Path: to, Err: err}
	}
}

// valid refuses what cannot be an id before anything is made.
func valid[T ~string](ids ...T) error {
	for _, id := range ids {
		if !snapshot.ValidID(string(id)) {
			return &problem{kind: errs.ErrNotSupported, why: fmt.Sprintf("%q is not an id", id)}
		}
	}
	return nil
}

func (e *entry) close() {
	if e.fd >= 0 {
		unix.Close(e.fd)
		e.fd = -1
	}
}

// giveUp takes back what begin, and perhaps copyFrom, made.
func (e *entry) giveUp() error {
	e.close()
	if unix.Unlinkat(e.room.fd, e.path+"/"+markName, 0) == nil &&
		unix.Unlinkat(e.room.fd, e.path, unix.AT_REMOVEDIR) == nil {
		return nil
	}
	return e.room.discard(e.path, "half")
}

// copyFrom makes the entry's tree a snapshot of the subvolume whose root is
// open as src, with what is nested beneath within. Atomic as a whole: the tree
// has its name when all of it is there.
func (e *entry) copyFrom(ctx context.Context, src int, within string, readOnly bool) error {
	nested, err := nestedIn(src, within)
	if err != nil {
		return err
	}
	if err := fault.Point(ctx, "snapshot the subvolume"); err != nil {
		return err
	}
	if len(nested) == 0 {
		return take(src, e.fd, treeName, readOnly)
	}
	const half = "half"
	if err := take(src, e.fd, half, false); err != nil {
		return err
	}
	root, err := e.room.open(e.path + "/" + half)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	if err := graft(ctx, src, root, within, nested, readOnly); err != nil {
		return err
	}
	if readOnly {
		if err := btrfs.SetReadOnly(root, true); err != nil {
			return &os.PathError{Op: "make read-only", Path: e.path, Err: err}
		}
	}
	if err := fault.Point(ctx, "give the tree its name"); err != nil {
		return err
	}
	if err := unix.Renameat(e.fd, half, e.fd, treeName); err != nil {
		return &os.PathError{Op: "rename", Path: e.path, Err: err}
	}
	return nil
}

func take(src, dir int, name string, readOnly bool) error {
	err := btrfs.Snapshot(src, dir, name, readOnly)
	if err == unix.EPERM {
		return &problem{
			kind: errs.ErrDenied, why: "the subvolume belongs to another user",
			hints: []string{"sudo snapfs …", "btrfs subvolume create work (one of your own)"},
		}
	}
	if err != nil {
		return &os.PathError{Op: "snapshot", Err: err}
	}
	return nil
}

// graft replaces the stubs that a snapshot shows for nested subvolumes by
// snapshots of these, recursively. The paths are relative to within.
func graft(ctx context.Context, src, dst int, within string, nested []string, readOnly bool) error {
	for _, path := range nested {
		if err := ctx.Err(); err != nil {
			return err
		}
		if within != "." {
			path = within + "/" + path
		}
		if err := graftOne(ctx, src, dst, path, readOnly); err != nil {
			return err
		}
	}
	return nil
}

func graftOne(ctx context.Context, src, dst int, path string, readOnly bool) error {
	from, err := beneath(src, path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was removed since it was listed: the stub stays
	}
	if err != nil {
		return err
	}
	defer unix.Close(from)
	dir, name := ".", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir, name = path[:i], path[i+1:]
	}
	parent, err := beneath(dst, dir)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	if err := fault.Point(ctx, "snapshot a nested subvolume"); err != nil {
		return err
	}
	if err := swap(from, parent, name); err != nil {
		var p *problem
		if errors.As(err, &p) {
			p.path, p.why = path, "a subvolume nested in the tree belongs to another user"
		}
		return err
	}
	to, err := beneath(parent, name)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	deeper, err := nestedIn(from, ".")
	if err != nil {
		return err
	}
	if err := graft(ctx, from, to, ".", deeper, readOnly); err != nil || !readOnly {
		return err
	}
	return btrfs.SetReadOnly(to, true)
}

// swap replaces a stub by a snapshot of the subvolume from. The directory keeps
// its time: nobody has changed it.
func swap(from, parent int, name string) error {
	st, err := vfs.Lstat(parent, "")
	if err != nil {
		return err
	}
	if err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); err != nil {
		return &os.PathError{Op: "replace", Path: name, Err: err}
	}
	if err := take(from, parent, name, false); err != nil {
		return err
	}
	times := []unix.Timespec{
		{Nsec: unix.UTIME_OMIT},
		{Sec: st.MTime.Sec, Nsec: int64(st.MTime.Nsec)},
	}
	if err := unix.UtimesNanoAt(parent, "", times, unix.AT_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "set the time of", Path: name, Err: err}
	}
	return nil
}

// nestedIn names the subvolumes nested in the one that is open as src, beneath
// within, relative to that. Directories with data of snapfs stay behind.
func nestedIn(src int, within string) ([]string, error) {
	dir := src
	if within != "." {
		fd, err := beneath(src, within)
		if err != nil {
			return nil, err
		}
		defer unix.Close(fd)
		dir = fd
	}
	all, err := btrfs.Nested(dir)
	if err != nil {
		return nil, &os.PathError{Op: "list the subvolumes in", Path: within, Err: err}
	}
	kept := all[:0]
	for _, path := range all {
		if !isHome(dir, path) {
			kept = append(kept, path)
		}
	}
	return kept, nil
}

func isHome(dir int, path string) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	if !strings.HasPrefix(name, hiddenDir) {
		return false
	}
	// A directory of another user cannot be looked into, nor copied.
	err := unix.Faccessat(dir, path+"/"+markName, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil || err == unix.EACCES
}
