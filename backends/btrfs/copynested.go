//go:build linux

package btrfs

import (
	"context"
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A nestedCopier copies the subvolumes nested in one tree into a new snapshot or fork, since a btrfs snapshot
// has empty directories in their place.
type nestedCopier struct {
	readOnly bool
	// from is the lineage of the tree that is copied, and made that of the copy.
	from, made lineage
}

// copyNested copies the subvolumes at the paths nested, relative to the tree of src, to dst, a btrfs snapshot
// of src, and records their lineage. With readOnly the copies cannot be written to, as in a snapshot.
func (e *entry) copyNested(ctx context.Context, src origin, dst int, nested []string, readOnly bool) error {
	c := nestedCopier{readOnly: readOnly, made: lineage{}}
	if src.entry != "" {
		var err error
		if c.from, err = e.data.readLineage(src.entry); err != nil {
			return err
		}
	}
	if err := c.copyAll(ctx, src.fd, dst, src.within, nested); err != nil {
		return err
	}
	if err := fault.Point(ctx, "record the lineage of nested subvolumes"); err != nil {
		return err
	}
	return e.writeLineage(c.made)
}

// copyAll replaces the empty directories that the btrfs snapshot dst of src has in place of nested subvolumes
// by snapshots of those subvolumes, recursively. The paths in nested are relative to within, a directory of
// src.
func (c nestedCopier) copyAll(ctx context.Context, src, dst int, within string, nested []string) error {
	for _, path := range nested {
		if err := ctx.Err(); err != nil {
			return err
		}
		if within != "." {
			path = within + "/" + path
		}
		if err := c.copyOne(ctx, src, dst, path); err != nil {
			return err
		}
	}
	return nil
}

func (c nestedCopier) copyOne(ctx context.Context, src, dst int, path string) error {
	from, err := openIn(src, path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // removed since it was listed
	}
	if err != nil {
		return err
	}
	defer unix.Close(from)
	info, err := btrfs.Info(from)
	if err != nil {
		return &os.PathError{Op: "read the subvolume's information", Path: path, Err: err}
	}
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
	c.made.add(info, c.from)
	to, err := openIn(parent, name)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	deeper, err := nestedIn(from, ".")
	if err != nil {
		return err
	}
	if err := c.copyAll(ctx, from, to, ".", deeper); err != nil || !c.readOnly {
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
