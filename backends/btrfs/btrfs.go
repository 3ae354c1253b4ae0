//go:build linux

// Package btrfs keeps snapshots and forks as btrfs subvolumes: one transaction
// commit each, whatever the size of the tree, and shared down to the block.
//
// # What can be captured
//
// A tree is a subvolume, or a directory inside one: then the whole subvolume is
// snapshotted, and the view points at the directory in it. Subvolumes nested
// beneath the tree come along, each snapshotted for itself an instant later.
// Root may capture any; an ordinary user only subvolumes that he owns.
//
// # Where the data lies
//
// In a subvolume called .snapfs, mode 0700, on the tree's own filesystem: for
// root in the top directory of the mount, for a user in the topmost directory
// that he owns. Being a subvolume, it shows as an empty directory in every
// snapshot of what holds it, so that no sandbox sees another's data, and what
// happens in it does not count as a change of the tree. Use [snapshot.Hider].
//
//	.snapfs/mark                     says that it is ours
//	.snapfs/<key>/                   the part of one state directory
//	  snapshots/<id>/{mark,tree}     tree is a read-only subvolume
//	  forks/<id>/{mark,tree}         tree is a writable one
//	  stock/<id>/<n>/{mark,tree}     ready-made forks of the snapshot id
//	  latest/<hash of a path>        a link: the last snapshot of that tree
//	  trash/                         what is removed; Sweep empties it
//
// Each subvolume has a directory of its own, because creations in one directory
// queue behind each other and those in different ones share their commit. An
// entry without tree is half made: it only answers to Remove and RemoveFork.
//
// Mount the filesystem noatime, or at least the views: an access time written is
// a change to btrfs, and [snapshot.Toucher] then names every file that was read.
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

// Driver opens this backend.
func Driver() snapshot.Driver {
	return snapshot.Driver{Name: "btrfs", Automatic: true, Open: Open}
}

// Open answers with the backend for place.Tree. It writes nothing.
// Errors: ErrNotFound; ErrNotSupported: the tree does not lie on btrfs, belongs
// to another user, or the filesystem has full quota groups; ErrDenied.
func Open(_ context.Context, place snapshot.Place) (snapshot.Backend, error) {
	return open("btrfs", place, place.Tree.Path)
}

// OpenFrom is Open for a tree whose content is kept, as an equal copy, in the
// directory from: what is captured is from, and what is answered names
// place.Tree. The backend's errors carry name. See package pool.
func OpenFrom(_ context.Context, name string, place snapshot.Place, from string) (*Backend, error) {
	return open(name, place, from)
}

// A Backend holds snapshots and forks on one btrfs filesystem. Any number of
// them, in any number of processes, may work in the same place at once.
type Backend struct {
	name string
	// top is the directory that holds .snapfs, hidden its name there, and key
	// our part of it.
	top, hidden, key string
	// tree is replaced by from in Capture and Clone; both are the same but
	// for OpenFrom.
	tree, from string
	// state is the directory of the state that owns our part.
	state string
	// own: see Own.
	own bool
}

var _ interface {
	snapshot.Backend
	snapshot.Cloner
	snapshot.Toucher
	snapshot.PairToucher
	snapshot.Drifter
	snapshot.Meter
	snapshot.Sweeper
	snapshot.Stocker
	snapshot.Hider
	snapshot.Limiter
	snapshot.LimitProber
	snapshot.Sharer
	snapshot.Gauge
	snapshot.Sender
	snapshot.Receiver
} = (*Backend)(nil)

func open(name string, place snapshot.Place, from string) (*Backend, error) {
	b := &Backend{name: name, tree: place.Tree.Path, from: from, state: place.Dir, key: hash(place.Dir)}
	src, err := findSource(from)
	if errors.Is(err, os.ErrNotExist) && b.findRoom(filepath.Dir(from)) {
		return b, nil // the tree is gone, what was made of it is not
	}
	if err != nil {
		return nil, b.fail("opening", "", err)
	}
	b.top, b.hidden = src.home, hiddenName(src.home)
	if r, err := b.enter(); err == nil {
		r.close()
		return b, nil
	}
	if err := usable(src); err != nil {
		return nil, b.fail("opening", "", err)
	}
	return b, nil
}

// findRoom looks for our data from the nearest directory above a tree that no
// longer exists.
func (b *Backend) findRoom(dir string) bool {
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

// usable says why the subvolume of src cannot be snapshotted by this process.
func usable(src source) error {
	if uid := os.Geteuid(); uid != 0 && (int(src.owner) != uid || src.home == "") {
		return &problem{
			kind: errs.ErrNotSupported, path: src.root,
			why: fmt.Sprintf("the subvolume belongs to uid %d, and only its owner or root may snapshot it", src.owner),
			hints: []string{
				"btrfs subvolume create work && cp -a --reflink OLD/. work/ (a subvolume of your own)",
				"mount -o remount,user_subvol_rm_allowed " + src.mount + " (as root: makes removing one as cheap as making it)",
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
		return &os.PathError{Op: "ask for the filesystem", Path: src.root, Err: err}
	}
	if mode == btrfs.QuotaFull {
		return &problem{
			kind: errs.ErrNotSupported, path: src.mount,
			why:   "full quota groups are on, and with them the removal of a snapshot can block the filesystem for minutes",
			hints: []string{"btrfs quota disable " + src.mount},
		}
	}
	return nil
}

// Facts says what holds for all trees of this backend.
func (b *Backend) Facts() snapshot.Facts {
	return snapshot.Facts{
		Frozen: true, Flushes: true, Unit: snapshot.ByBlock, Durable: true, KeepsInodes: true,
		RealInodes: true, DirRename: true,
	}
}

// Hidden names the directory that holds the data of all forks.
func (b *Backend) Hidden() []string { return []string{b.top + sep(b.top) + b.hidden} }

// fail makes err the contract's error.
func (b *Backend) fail(op, id string, err error) error {
	if err == nil {
		return nil
	}
	var done *errs.Error
	if errors.As(err, &done) {
		return err
	}
	e := &errs.Error{Op: op, Component: b.name, Subject: id, Kind: kindOf(err), Err: err}
	var p *problem
	var at *os.PathError
	switch {
	case errors.As(err, &p):
		e.Path, e.Hints = p.path, p.hints
	case errors.As(err, &at):
		e.Path, e.Err = at.Path, at.Err
	}
	if len(e.Hints) == 0 {
		e.Hints = hintsFor(e.Kind, e.Path)
	}
	return e
}
