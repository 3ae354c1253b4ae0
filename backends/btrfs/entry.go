//go:build linux

package btrfs

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/fault"
)

// An entry is the open directory of a snapshot or fork that is being made, with a mark (a text file that
// describes it) and later the subvolume.
type entry struct {
	data dataDir
	path string // relative to the data directory
	fd   int
}

// newborn is the name prefix, in the trash, of directories of snapshots and forks that are just being made
// there. Sweep leaves them alone as long as the process that makes them runs.
const newborn = "new."

// begin makes the directory of the snapshot or fork id, as kind says, and returns it open. m is its mark, the
// text file that describes it. It makes both in the trash and then renames them, so that such a directory
// never lacks its mark. Errors: ErrExists.
func (r dataDir) begin(ctx context.Context, kind, id string, m mark) (*entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	born := trash + "/" + newborn + unique()
	if err := fault.Point(ctx, "make the entry"); err != nil {
		return nil, err
	}
	if err := unix.Mkdirat(r.fd, born, 0o700); err != nil {
		return nil, &os.PathError{Op: "make", Path: born, Err: err}
	}
	e := &entry{data: r, path: born, fd: -1}
	err := fault.Point(ctx, "write the mark")
	if err == nil {
		err = r.writeMark(born+"/"+markName, m)
	}
	if err == nil {
		e.fd, err = r.open(born)
	}
	if err == nil {
		err = fault.Point(ctx, "name the entry")
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
		return &errs.Error{Kind: errs.ErrExists, Err: errors.New("the id exists")}
	default:
		return &os.PathError{Op: "rename", Path: to, Err: err}
	}
}

// valid returns ErrNotSupported if any of the ids of snapshots or forks is malformed, and so could not be
// used as the name of a directory.
func valid[T ~string](ids ...T) error {
	for _, id := range ids {
		if !snapshot.ValidID(string(id)) {
			return &errs.Error{Kind: errs.ErrNotSupported, Err: fmt.Errorf("%q is not a valid id", id)}
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

// giveUp removes a half-made snapshot or fork after an error: its directory, mark and copied subvolumes.
func (e *entry) giveUp() error {
	e.close()
	if unix.Unlinkat(e.data.fd, e.path+"/"+markName, 0) == nil &&
		unix.Unlinkat(e.data.fd, e.path, unix.AT_REMOVEDIR) == nil {
		return nil
	}
	return e.data.discard(e.path, "half")
}

// An origin is the open subvolume of which a new snapshot or fork is a copy.
type origin struct {
	fd int // its root
	// within is the path of the tree in the subvolume, or ".".
	within string
	// entry is the directory of the snapshot or fork that the subvolume belongs to, relative to the data
	// directory; "" for the real tree.
	entry string
}

// copyFrom makes the subvolume of a new snapshot or, without readOnly, fork: a btrfs snapshot of the
// subvolume src, including the subvolumes nested in the tree. Atomic: the new subvolume gets its name when it
// is complete.
func (e *entry) copyFrom(ctx context.Context, src origin, readOnly bool) error {
	nested, err := nestedIn(src.fd, src.within)
	if err != nil {
		return err
	}
	if err := fault.Point(ctx, "snapshot the subvolume"); err != nil {
		return err
	}
	if len(nested) == 0 {
		return snapshotInto(src.fd, e.fd, treeName, readOnly)
	}
	const half = "half"
	if err := snapshotInto(src.fd, e.fd, half, false); err != nil {
		return err
	}
	root, err := e.data.open(e.path + "/" + half)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	if err := e.copyNested(ctx, src, root, nested, readOnly); err != nil {
		return err
	}
	if readOnly {
		if err := btrfs.SetReadOnly(root, true); err != nil {
			return &os.PathError{Op: "make read-only", Path: e.path, Err: err}
		}
	}
	if err := fault.Point(ctx, "name the tree"); err != nil {
		return err
	}
	if err := unix.Renameat(e.fd, half, e.fd, treeName); err != nil {
		return &os.PathError{Op: "rename", Path: e.path, Err: err}
	}
	return nil
}

func snapshotInto(src, dir int, name string, readOnly bool) error {
	err := btrfs.Snapshot(src, dir, name, readOnly)
	if err == unix.EPERM {
		return &errs.Error{
			Kind: errs.ErrDenied, Err: errors.New("the subvolume belongs to another user"),
			Hints: []string{"sudo snapfs …", "btrfs subvolume create work (one of your own)"},
		}
	}
	if err != nil {
		return &os.PathError{Op: "snapshot", Err: err}
	}
	return nil
}
