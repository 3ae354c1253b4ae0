//go:build linux

package btrfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/btrfs"
	"golang.org/x/sys/unix"
)

// Driver is the driver of the btrfs backend, by which the engine finds and opens it.
var Driver = snapshot.Driver{Name: "btrfs", Automatic: true, Filesystem: "btrfs", Open: Open}

// Open returns the btrfs backend for the tree place.Tree. It writes nothing. Errors: ErrNotFound;
// ErrNotSupported (the tree is not on btrfs or belongs to another user, or the filesystem has full quota
// groups); ErrDenied.
func Open(_ context.Context, place snapshot.Place) (snapshot.Backend, error) {
	return open("btrfs", place, place.Tree.Path)
}

// OpenFrom opens the backend for the tree place.Tree, which has an equal copy on btrfs in the directory from:
// captures read that copy, and the results name place.Tree. Errors name the backend as name. Package pool
// uses it.
func OpenFrom(_ context.Context, name string, place snapshot.Place, from string) (*Backend, error) {
	return open(name, place, from)
}

// A Backend stores snapshots and forks as subvolumes of one btrfs filesystem. [Open] makes one. Any number of
// backends, in any number of processes, may use the same place at once.
type Backend struct {
	name string
	// top is the directory that contains .snapfs; hidden is the name of .snapfs there; key
	// names the subdirectory of .snapfs for this state directory.
	top, hidden, key string
	// tree is the path that callers pass to Capture and Clone, which read from instead. Both
	// are equal, except after OpenFrom.
	tree, from string
	// state is the state directory whose forks and snapshots this backend stores.
	state string
	// own is set if the whole filesystem belongs to snapfs; see Own.
	own bool
}

var _ interface {
	snapshot.Backend
	snapshot.Cloner
	snapshot.ChangeLister
	snapshot.DriftDetector
	snapshot.Preforker
	snapshot.Limiter
	snapshot.Sender
} = (*Backend)(nil)

func open(name string, place snapshot.Place, from string) (*Backend, error) {
	b := &Backend{name: name, tree: place.Tree.Path, from: from, state: place.Dir, key: hash(place.Dir)}
	src, err := findSource(from)
	if errors.Is(err, os.ErrNotExist) && b.findData(filepath.Dir(from)) {
		return b, nil // the tree is gone, and its snapshots are not
	}
	if err != nil {
		return nil, b.fail("opening", "", err)
	}
	b.top, b.hidden = src.home, hiddenName(src.home)
	if r, err := b.enter(); err == nil {
		r.close()
		return b, nil
	}
	if err := checkUsable(src); err != nil {
		return nil, b.fail("opening", "", err)
	}
	return b, nil
}

// findData finds the data directory .snapfs for a tree that no longer exists, and makes b use it, so that
// sandboxes of that tree can still be removed. It starts at dir, the tree's parent directory, and goes up to
// the nearest one that exists. It returns false if there is no data directory.
func (b *Backend) findData(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		src, err := findSource(dir)
		if err == nil {
			b.top, b.hidden = src.home, hiddenName(src.home)
			r, err := b.enter()
			if err == nil {
				r.close()
			}
			return err == nil
		}
		if !errors.Is(err, os.ErrNotExist) || dir == "/" {
			return false
		}
	}
}

// checkUsable returns the reason why this process cannot snapshot the subvolume in which src says that the
// tree is, or nil.
func checkUsable(src source) error {
	if uid := os.Geteuid(); uid != 0 && (int(src.owner) != uid || src.home == "") {
		return &errs.Error{
			Kind: errs.ErrNotSupported, Path: src.root,
			Err: fmt.Errorf("the subvolume belongs to uid %d, and only its owner or root can snapshot it", src.owner),
			Hints: []string{
				"btrfs subvolume create work && cp -a --reflink OLD/. work/ (a subvolume of your own)",
				"mount -o remount,user_subvol_rm_allowed " + errs.Quoted(src.mount) + " (as root: makes removal as cheap as creation)",
			},
		}
	}
	fd, err := unix.Open(src.root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: src.root, Err: err}
	}
	defer unix.Close(fd)
	mode, err := btrfs.QuotaModeOf(fd)
	if err != nil {
		return &os.PathError{Op: "read the quota mode of", Path: src.root, Err: err}
	}
	if mode == btrfs.QuotaFull {
		return &errs.Error{
			Kind: errs.ErrNotSupported, Path: src.mount,
			Err:   errors.New("full quota groups are on; with them the removal of a snapshot can block the filesystem for minutes"),
			Hints: []string{"btrfs quota disable " + errs.Quoted(src.mount)},
		}
	}
	return nil
}

// Facts returns the properties of this backend that the engine and the user need, such as that a base never
// changes after its capture.
func (b *Backend) Facts() snapshot.Facts {
	return snapshot.Facts{
		Frozen: true, Flushes: true, Unit: snapshot.ByBlock, Durable: true, KeepsInodes: true,
		RealInodes: true, DirRename: true, Hidden: b.home(),
	}
}

// home returns the path of the directory .snapfs with the backend's data, which no sandbox may see.
func (b *Backend) home() string { return b.top + sep(b.top) + b.hidden }

// fail wraps err in an [*errs.Error] with the operation op, the id of a snapshot or fork, and a path. A nil
// err stays nil.
func (b *Backend) fail(op, id string, err error) error {
	if err == nil || errs.HasOp(err) {
		return err
	}
	e := &errs.Error{Op: op, Component: b.name, Subject: id, Kind: kindOf(err), Err: err}
	var p *errs.Error
	var at *os.PathError
	switch {
	case errors.As(err, &p):
		e.Path, e.Hints = p.Path, p.Hints
		if err == error(p) { //nolint:errorlint // an error that wraps p has more text
			e.Err = p.Err
		}
	case errors.As(err, &at):
		e.Path, e.Err = at.Path, at.Err
	}
	if len(e.Hints) == 0 {
		e.Hints = hintsFor(e.Kind, e.Path)
	}
	return e
}
