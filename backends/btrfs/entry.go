//go:build linux

package btrfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
)

// An entry is the open directory of a snapshot or fork that is being made, with a mark (a text file that
// describes it) and later the subvolume.
type entry struct {
	data dataDir
	path string // relative to the data directory
	fd   int
}

// newborn is the name prefix, in the trash, of directories of snapshots and forks that are just being made
// there.
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

// copyFrom makes the subvolume of a new snapshot or fork: a btrfs snapshot of the subvolume whose root is
// open as src, including the subvolumes nested in its directory within. Atomic: the new subvolume gets its
// name when it is complete.
func (e *entry) copyFrom(ctx context.Context, src int, within string, readOnly bool) error {
	nested, err := nestedIn(src, within)
	if err != nil {
		return err
	}
	if err := fault.Point(ctx, "snapshot the subvolume"); err != nil {
		return err
	}
	if len(nested) == 0 {
		return snapshotInto(src, e.fd, treeName, readOnly)
	}
	const half = "half"
	if err := snapshotInto(src, e.fd, half, false); err != nil {
		return err
	}
	root, err := e.data.open(e.path + "/" + half)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	if err := copyNested(ctx, src, root, within, nested, readOnly); err != nil {
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

// copyNested replaces the empty directories that the btrfs snapshot dst of src has in place of nested
// subvolumes by snapshots of those subvolumes, recursively. The paths in nested are relative to within.
func copyNested(ctx context.Context, src, dst int, within string, nested []string, readOnly bool) error {
	for _, path := range nested {
		if err := ctx.Err(); err != nil {
			return err
		}
		if within != "." {
			path = within + "/" + path
		}
		if err := copyNestedOne(ctx, src, dst, path, readOnly); err != nil {
			return err
		}
	}
	return nil
}

func copyNestedOne(ctx context.Context, src, dst int, path string, readOnly bool) error {
	from, err := openIn(src, path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // removed since it was listed
	}
	if err != nil {
		return err
	}
	defer unix.Close(from)
	dir, name := ".", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir, name = path[:i], path[i+1:]
	}
	parent, err := openIn(dst, dir)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	if err := fault.Point(ctx, "snapshot a nested subvolume"); err != nil {
		return err
	}
	if err := replaceStub(from, parent, name); err != nil {
		var p *errs.Error
		if errors.As(err, &p) {
			p.Path, p.Err = path, errors.New("a subvolume nested in the tree belongs to another user")
		}
		return err
	}
	to, err := openIn(parent, name)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	deeper, err := nestedIn(from, ".")
	if err != nil {
		return err
	}
	if err := copyNested(ctx, from, to, ".", deeper, readOnly); err != nil || !readOnly {
		return err
	}
	return btrfs.SetReadOnly(to, true)
}

// replaceStub replaces the empty directory name in parent, which a btrfs snapshot has in place of a nested
// subvolume, by a snapshot of that subvolume, open as from. The mtime of the parent stays, because the user
// has not changed it.
func replaceStub(from, parent int, name string) error {
	st, err := vfs.Lstat(parent, "")
	if err != nil {
		return err
	}
	if err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); err != nil {
		return &os.PathError{Op: "replace", Path: name, Err: err}
	}
	if err := snapshotInto(from, parent, name, false); err != nil {
		return err
	}
	times := []unix.Timespec{
		{Nsec: unix.UTIME_OMIT},
		{Sec: st.MTime.Sec, Nsec: int64(st.MTime.Nsec)},
	}
	if err := unix.UtimesNanoAt(parent, "", times, unix.AT_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "set the mtime of", Path: name, Err: err}
	}
	return nil
}

// nestedIn lists the btrfs subvolumes nested in the directory within of the subvolume open as src. The paths
// are relative to within. It omits snapfs's own.
func nestedIn(src int, within string) ([]string, error) {
	dir := src
	if within != "." {
		fd, err := openIn(src, within)
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
	found := all[:0]
	for _, path := range all {
		if !isHome(dir, path) {
			found = append(found, path)
		}
	}
	return found, nil
}

func isHome(dir int, path string) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	if !strings.HasPrefix(name, hiddenDir) {
		return false
	}
	// Another user's .snapfs can be neither read nor copied.
	err := unix.Faccessat(dir, path+"/"+markName, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil || err == unix.EACCES
}
