//go:build linux

// Package overlay stores snapshots and forks by the kernel's overlayfs: the real tree is the lowest
// layer, and each fork writes to an upper layer of its own. It needs only a Linux kernel, and works
// for root and, in a user namespace, for ordinary users.
//
// A snapshot is live: a file that no layer has changed shows the present content of the real tree.
//
// # Layout
//
//	lock                     shared by users of layers, exclusive for their removal
//	snapshots/<id>           a text file: its tree, its time and its layers
//	forks/<id>               a text file: the same, and the fork's upper layer
//	layers/<layer>/snapfs-1/ overlayfs's upperdir
//	layers/<layer>/work/     overlayfs's workdir, as long as a fork writes to the layer
//	layers/<layer>/unsettled the boot id of the boot in which the layer was sealed and not synced
//	layers/<layer>/merged    a symbolic link to a layer that replaces this one and all below it
//	layers/<layer>/remarking the files of the layer are being given a project id (see limit.go)
//	tmp/                     layers that are being copied
//	spare/                   empty layers for new forks
//	old/                     files of removed records, for new records
//	trash/                   files and directories to delete
//	none/                    an empty directory, for overlays that need another lower
//
// A layer is created at its final place and never moves. Sealing an idle fork therefore takes three
// small files: the fork gets a new empty upper, then the snapshot its record, then the fork its new
// base. The state after each step is valid. A crash leaves only layers that no record names, and
// Sweep deletes those.
//
// Removing a snapshot or fork removes its record. Snapshots and forks share layers: Sweep takes the
// lock exclusively and moves layers that no record names into the trash.
//
// # Visible limits of overlayfs
//
// A file of the real tree with several hard links is copied up when somebody first writes to it
// through one of them. The other names keep the old content, and only the written name is listed as
// changed. (With index=on the kernel preserves such links, but stores a part of the state in the
// work directory, and a layer would not be complete by itself.)
//
// An ordinary user cannot rename a directory of the real tree in one call, and cannot give the root
// of another user's tree to its owner.
package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

const name = "overlay"

// Driver returns the driver of this backend. It accepts any directory of a local filesystem, and
// stores its data on any local filesystem that overlayfs can use as an upper.
func Driver() snapshot.Driver {
	return snapshot.Driver{Name: name, Automatic: true, Open: Open}
}

// Open returns the backend whose data is in place.Dir, for place.Tree or any other tree. It writes
// nothing. Cost: some ten microseconds; for an ordinary user also reading the mount table. Errors:
// ErrNotFound (no such tree), ErrNotSupported with the reason.
func Open(_ context.Context, place snapshot.Place) (snapshot.Backend, error) {
	return open(place, nil, nil)
}

func open(place snapshot.Place, storage QuotaStorage, served LowerServer) (*Backend, error) {
	userXattr, locked := privilege()
	mergeAt, maxChain := chainLimits()
	s := &store{dir: filepath.Clean(place.Dir), userXattr: userXattr, storage: storage, mergeAt: mergeAt}
	b := &backend{store: s, projects: projects{s}, locked: locked, served: served, maxChain: maxChain}
	if !filepath.IsAbs(place.Dir) {
		return nil, fail("opening", "", because(errs.ErrNotSupported, place.Dir, "the directory for layers is not an absolute path"))
	}
	if place.Held {
		return b, nil
	}
	if err := b.checkLower(place.Tree.Path); err != nil {
		return nil, fail("opening", "", err)
	}
	if err := checkUpper(b.store.dir); err != nil {
		return nil, fail("opening", "", err)
	}
	return b, nil
}

// privilege reports how this process may use overlayfs. userXattr is false only for root of the
// initial user namespace, which may write trusted.* attributes. locked reports that the mounts of
// overlays will be made in a user namespace that does not exist yet, in which all present mounts
// are locked.
func privilege() (userXattr, locked bool) {
	const first = "user:[4026531837]" // PROC_USER_INIT_INO of linux/proc_ns.h
	ns, err := os.Readlink("/proc/self/ns/user")
	outside := err != nil || ns == first
	root := os.Geteuid() == 0
	return !root || !outside, !root && outside
}

// A backend has no state except its directory, so that any number of processes may use the same
// one.
type backend struct {
	store    *store
	projects projects
	locked   bool // see privilege
	served   LowerServer
	maxChain int // the longest chain of layers; Seal merges it first
}

func (b *backend) Facts() snapshot.Facts {
	return snapshot.Facts{Unit: snapshot.ByFile, Durable: true, DirRename: !b.store.userXattr, PartsLinks: true, Served: b.served != nil}
}

// Hidden returns the directory of the layers, which no sandbox may see.
func (b *backend) Hidden() []string { return []string{b.store.dir} }

// fail returns err as an error of the contract, with the path of a *fs.PathError.
func fail(op, id string, err error) error {
	var done *errs.Error
	if err == nil || errors.As(err, &done) { // an error of the quota storage
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
