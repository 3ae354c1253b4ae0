//go:build linux

// Package fusecow keeps snapshots and forks with a filesystem of its own, package
// layer: the real tree is only read, and what a fork changes lies in a layer above
// it. It needs /dev/fuse and the right to mount, and nothing of the filesystem
// that its data lies on. What is captured is live: a file that no layer has changed
// is read from the real tree as it is now. Where somebody freezes trees, a [Freezer], it
// is read from what he keeps.
//
// # Layout
//
//	lock                shared by who names layers, exclusive to who clears them
//	snapshots/<id>      a text file: of which tree, when, and its layers
//	forks/<id>          a text file: the same, and the last layer is its own
//	layers/<layer>/     a layer; its log is the mark that it is ours
//	layers/<layer>/ask  the socket of the process that has it open to be written to
//	layers/<layer>/instead     in one that was merged, until all records name it: of what
//	layers/<layer>/superseded  a merged one has its place, and it goes soon
//	quotas/<name>       what layers hold, and may at most: a [layer.Quota]
//	states/<number>     a text file: what a [Freezer] keeps, or is about to
//	tmp/                records and layers being made
//	trash/              what is to be deleted
//
// A record is renamed into its place when it is whole. A layer that a snapshot names
// is never written again, so sealing is a matter of small files: the fork goes on
// with a new layer, then the snapshot is there, then it is the fork's base. Each step
// leaves a state that is right by itself.
//
// # Who serves
//
// A process of a program of its own, which whoever wants a mount starts and which ends
// with the last mount: see [Serve]. The one that serves a fork to be written to has its
// layer open, held by flock(2), and listens beside it: another process that wants the
// fork gets a mount of the same filesystem from there, and sealing a fork in use has it go
// on with the next layer. What nobody has open is served to be looked at by one more.
package fusecow

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

const name = "fusecow"

// Driver opens this backend. It holds any directory of a local filesystem. Program
// finds the program, with its arguments, that calls [Serve]; it is called when a
// tree is opened or is to be served.
func Driver(program func() ([]string, error)) snapshot.Driver {
	return snapshot.Driver{Name: name, Automatic: true, Open: func(_ context.Context, place snapshot.Place) (snapshot.Backend, error) {
		b := &backend{dir: filepath.Clean(place.Dir), program: program}
		if err := b.open(place); err != nil {
			return nil, err
		}
		return liveBackend{b}, nil
	}}
}

// OpenFrozen opens this backend with bases that f keeps frozen. Program is as that of
// [Driver]. Errors: those of f too.
func OpenFrozen(ctx context.Context, place snapshot.Place, program func() ([]string, error), f Freezer) (snapshot.Backend, error) {
	if !place.Held {
		if err := f.Holds(ctx, place.Tree.Path); err != nil {
			return nil, err
		}
	}
	b := &backend{dir: filepath.Clean(place.Dir), program: program, freezer: f}
	if err := b.open(place); err != nil {
		return nil, err
	}
	return b, nil
}

// open says whether the backend can have its data in place.Dir, for place.Tree or any
// other tree. It writes nothing. Cost: some ten microseconds. Errors: ErrNotFound (no
// such tree), ErrNotSupported with the reason.
func (b *backend) open(place snapshot.Place) error {
	if !filepath.IsAbs(place.Dir) {
		return fail("opening", "", because(errs.ErrNotSupported, place.Dir, "the place for layers is not an absolute path"))
	}
	if place.Held {
		return nil
	}
	err := checkFUSE()
	if err == nil {
		err = checkTree(place.Tree.Path)
	}
	if err == nil {
		_, err = b.serverProgram()
	}
	return fail("opening", "", err)
}

// canServe says why nothing can be served on this machine, or nil.
func checkFUSE() error {
	if err := unix.Access("/dev/fuse", unix.R_OK|unix.W_OK); err != nil {
		mend := "sudo modprobe fuse"
		if errors.Is(err, unix.EACCES) { // it is there
			mend = "sudo chmod 0666 /dev/fuse"
		}
		return because(errs.ErrNotSupported, "/dev/fuse", "it cannot be opened: "+err.Error(), mend, "ls -l /dev/fuse")
	}
	return nil
}

// server finds the program that serves trees.
func (b *backend) serverProgram() ([]string, error) {
	program, err := b.program()
	var missing *run.MissingError
	if errors.As(err, &missing) {
		err = because(errs.ErrNotSupported, missing.Name, "this program is not installed", missing.Fix)
	}
	return program, err
}

// holds says why the tree at path cannot be held, or nil.
func checkTree(path string) error {
	st, err := vfs.Lstat(unix.AT_FDCWD, path)
	if err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: errors.Unwrap(err)}
	}
	if !st.IsDir() {
		return because(errs.ErrNotSupported, path, "it is not a directory")
	}
	f, err := mount.FilesystemOf(path)
	switch {
	case err != nil:
		return err
	case f.IsNetwork():
		return because(errs.ErrNotSupported, path, "it is on a network filesystem ("+f.Type+"), where other machines write")
	case f.IsVirtual(), f.Type == "hugetlbfs":
		return because(errs.ErrNotSupported, path, "it is made up by the kernel ("+f.Type+"), there is nothing to copy")
	}
	return nil
}

// A backend has no state but its directory, so that any number of them, in any
// number of processes, may work on the same one.
type backend struct {
	dir     string
	program func() ([]string, error)
	freezer Freezer // nil: bases are live
}

func (b *backend) Facts() snapshot.Facts {
	frozen := b.freezer != nil
	return snapshot.Facts{
		Unit: snapshot.ByFile, Durable: true, DirRename: true, Served: true,
		Frozen: frozen, Flushes: frozen, RealInodes: frozen,
	}
}

// Hidden is where the layers are: no sandbox may see them.
func (b *backend) Hidden() []string { return []string{b.dir} }

func (b *backend) snapshotPath(id snapshot.ID) string { return b.dir + "/snapshots/" + string(id) }
func (b *backend) forkPath(id snapshot.ForkID) string { return b.dir + "/forks/" + string(id) }
func (b *backend) layerPath(layer string) string      { return b.dir + "/layers/" + layer }

// fail makes err the contract's error, unless it is. A *fs.PathError lends it its path.
func fail(op, id string, err error) error {
	var done *errs.Error
	if err == nil || errors.As(err, &done) {
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
	switch {
	case errors.Is(e.Kind, errs.ErrNoSpace):
		e.Hints = []string{"snapfs gc"}
	case errors.Is(err, layer.ErrDamaged):
		e.Hints = []string{"snapfs doctor SANDBOX --repair"}
	}
	return e
}

// kindOf is the kind of a reason of our own, or of what the system said.
func kindOf(err error) error {
	var r *reason
	switch {
	case errors.As(err, &r):
		return r.kind
	case errors.Is(err, unix.EPERM), errors.Is(err, os.ErrPermission):
		return errs.ErrDenied
	}
	return errs.KindOfFile(err)
}

// because is a failure of a kind, in words of our own.
func because(kind error, path, why string, hints ...string) error {
	return &fs.PathError{Op: name, Path: path, Err: &reason{kind, why, hints}}
}

type reason struct {
	kind  error
	why   string
	hints []string
}

func (r *reason) Error() string { return r.why }
