//go:build linux

// Package overlay keeps snapshots and forks with the kernel's overlayfs: the
// real tree is the lowest layer, and what a fork changes lies in a layer above.
// It needs nothing but a Linux kernel and works as root and, in a user
// namespace, as an ordinary user. What is captured is live: a file that no
// layer has changed is read from the real tree as it is now.
//
// # Layout
//
//	lock                     shared by who uses layers, exclusive to who clears them
//	snapshots/<id>           a text file: of which tree, when, and its layers
//	forks/<id>               a text file: the same, and the layer it writes to
//	layers/<layer>/snapfs-1/ what overlayfs calls an upper directory
//	layers/<layer>/work/     its work directory, as long as a fork writes to it
//	layers/<layer>/unsettled the boot during which its data may not have reached the disk
//	layers/<layer>/merged    another layer, which stands for this and all below
//	layers/<layer>/remarking its files are being given the project of its fork (see limit.go)
//	tmp/                     layers being copied
//	spare/                   layers as good as new
//	old/                     files of removed records, to be used again
//	trash/                   what is to be deleted
//	none/                    an empty directory, where an overlay lacks a layer
//
// A layer is born where it stays and never moves, so sealing an idle fork is a
// matter of three small files: the fork gets a new empty layer, then the
// snapshot its file, then the fork its new base. Each step leaves a state that
// is right by itself, so there is nothing to recover after a crash but layers
// that no file names, and Sweep takes those.
//
// Removing removes the text file. Layers are shared: Sweep, alone under the
// lock, moves those that no snapshot and no fork names into the trash.
//
// # Limits of overlayfs that show
//
// A file of the real tree with several hard links is copied when it is first
// written through one of them; the other names keep the old content, and only
// the name that was written is reported as touched. (The kernel can keep such
// links with index=on, but then keeps part of the state in the work directory,
// and a layer would not be whole by itself.) An ordinary user cannot rename a
// directory of the real tree in one call, and cannot give the root of a tree
// that belongs to somebody else to its owner.
package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

const name = "overlay"

// treeDir is the directory of a layer that holds its tree. Its name is the mark
// by which a layer is known to be ours, and the version of what is in it.
const treeDir = "snapfs-1"

// Driver opens this backend. It holds any directory of a local filesystem, and
// keeps its data on any local filesystem that overlayfs can write to.
func Driver() snapshot.Driver {
	return snapshot.Driver{Name: name, Automatic: true, Open: Open}
}

// Open answers with the backend whose data is in place.Dir, for place.Tree or
// any other tree. It writes nothing. Cost: some ten microseconds; for an
// ordinary user also the reading of the mount table.
// Errors: ErrNotFound (no such tree), ErrNotSupported with the reason.
func Open(_ context.Context, place snapshot.Place) (snapshot.Backend, error) {
	return open(place, nil, nil)
}

func open(place snapshot.Place, ground Ground, below Below) (*Backend, error) {
	b := &backend{dir: filepath.Clean(place.Dir), ground: ground, below: below, chains: chainsNow()}
	b.userXattr, b.locked = standing()
	if !filepath.IsAbs(place.Dir) {
		return nil, fail("opening", "", because(errs.ErrNotSupported, place.Dir, "the place for layers is not an absolute path"))
	}
	if place.Held {
		return b, nil
	}
	if err := b.holds(place.Tree.Path); err != nil {
		return nil, fail("opening", "", err)
	}
	if err := canHoldLayers(b.dir); err != nil {
		return nil, fail("opening", "", err)
	}
	return b, nil
}

// standing tells root of the first user namespace, who writes overlayfs's records
// to trusted.* attributes, from everybody else, and whether a namespace is yet
// to be made, in which every mount of today will be locked.
func standing() (userXattr, locked bool) {
	const first = "user:[4026531837]" // PROC_USER_INIT_INO of linux/proc_ns.h
	ns, err := os.Readlink("/proc/self/ns/user")
	outside := err != nil || ns == first
	root := os.Geteuid() == 0
	return !root || !outside, !root && outside
}

// A backend has no state but its directory, so that any number of them, in
// any number of processes, may work on the same one.
type backend struct {
	dir       string
	userXattr bool
	locked    bool // see standing
	ground    Ground
	below     Below
	chains    chains
}

func (b *backend) Facts() snapshot.Facts {
	return snapshot.Facts{Unit: snapshot.ByFile, Durable: true, DirRename: !b.userXattr, PartsLinks: true, Served: b.below != nil}
}

// Hidden is where the layers are: no sandbox may see them.
func (b *backend) Hidden() []string { return []string{b.dir} }

func (b *backend) snapshotPath(id snapshot.ID) string { return b.dir + "/snapshots/" + string(id) }
func (b *backend) forkPath(id snapshot.ForkID) string { return b.dir + "/forks/" + string(id) }
func (b *backend) layerPath(layer string) string      { return b.dir + "/layers/" + layer }
func (b *backend) treePath(layer string) string {
	return b.layerPath(layer) + b.inner() + "/" + treeDir
}
func (b *backend) workPath(layer string) string { return b.layerPath(layer) + b.inner() + "/work" }

// attr is the full name of one of overlayfs's own attributes.
func (b *backend) attr(short string) string {
	if b.userXattr {
		return "user.overlay." + short
	}
	return "trusted.overlay." + short
}

// fail makes err the contract's error. A *fs.PathError lends it its path.
func fail(op, id string, err error) error {
	var done *errs.Error
	if err == nil || errors.As(err, &done) { // a ground's
		return err
	}
	e := &errs.Error{Op: op, Component: name, Subject: id, Kind: kindOf(err), Err: err}
	var at *fs.PathError
	if errors.As(err, &at) {
		e.Path, e.Err = at.Path, at.Err
	}
	var r *reason
	if errors.As(err, &r) {
		e.Hints = r.hints
	}
	if errors.Is(e.Kind, errs.ErrNoSpace) {
		e.Hints = []string{"snapfs gc"}
	}
	return e
}

// kindOf is the kind of a reason of our own, or of what the system said.
func kindOf(err error) error {
	var r *reason
	if errors.As(err, &r) {
		return r.kind
	}
	return errs.KindOfFile(err)
}

// because is a failure of a kind, in words of our own.
func because(kind error, path, why string, hints ...string) error {
	return &fs.PathError{Op: "overlay", Path: path, Err: &reason{kind, why, hints}}
}

type reason struct {
	kind  error
	why   string
	hints []string
}

func (r *reason) Error() string { return r.why }
func (r *reason) Unwrap() error { return r.kind }

func quote(path string) string { return strconv.Quote(path) }
