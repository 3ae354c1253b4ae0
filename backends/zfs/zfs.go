//go:build linux

package zfs

import (
	"context"
	"errors"
	"os"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/vfs"
)

const name = "zfs"

// Driver is the driver of the ZFS backend, by which the engine finds and opens it.
var Driver = snapshot.Driver{Name: name, Automatic: true, Filesystem: "zfs", Open: Open}

// Open returns the ZFS backend for the tree place.Tree. It writes nothing, and starts no program. Errors:
// ErrNotFound; ErrNotSupported (the tree is not on ZFS, the user is not root, zfs(8) is missing, or the
// dataset's name is too long).
func Open(_ context.Context, place snapshot.Place) (snapshot.Backend, error) {
	b := &Backend{dir: place.Dir}
	if _, err := os.Lstat(place.Dir); place.Held && err == nil {
		return b, nil
	}
	if err := checkUsable(place.Tree.Path); err != nil {
		if _, gone := os.Lstat(place.Dir); errors.Is(err, os.ErrNotExist) && gone == nil {
			return b, nil // the tree is gone, and its snapshots are not
		}
		return nil, fail("opening", "", err)
	}
	return b, nil
}

// checkUsable returns the reason why this process cannot capture and fork the tree, or nil.
func checkUsable(tree string) error {
	if err := onZFS(tree); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return &errs.Error{
			Kind: errs.ErrNotSupported, Path: tree,
			Err:   errors.New("only root can mount a clone on Linux, whatever zfs allow grants"),
			Hints: []string{"sudo snapfs …", "snapfs … --backend zfs-fusecow"},
		}
	}
	if _, err := run.Look("zfs"); err != nil {
		return noProgram(err)
	}
	if _, err := vfs.Lstat(-1, "/dev/zfs"); err != nil {
		return &errs.Error{
			Kind: errs.ErrNotSupported, Path: tree, Err: errors.New("/dev/zfs is missing, which zfs(8) needs"),
			Hints: []string{"modprobe zfs"},
		}
	}
	src, err := findSource(tree)
	if err != nil {
		return err
	}
	return checkName(src)
}

// A Backend stores snapshots and forks as ZFS datasets. [Open] makes one. Any number of backends, in any
// number of processes, may use the same state directory at once.
type Backend struct {
	// dir is the backend's directory in the state directory.
	dir string
}

var _ interface {
	snapshot.Backend
	snapshot.Cloner
	snapshot.ChangeLister
	snapshot.DriftDetector
} = (*Backend)(nil)

// Facts returns the properties of this backend that the engine and the user need, such as that a base never
// changes after its capture.
func (b *Backend) Facts() snapshot.Facts {
	return snapshot.Facts{
		Frozen: true, Flushes: true, Unit: snapshot.ByBlock, Durable: true, KeepsInodes: true,
		RealInodes: true, DirRename: true,
	}
}
