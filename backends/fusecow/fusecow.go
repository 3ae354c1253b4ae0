//go:build linux

// Package fusecow keeps snapshots and forks with a filesystem of its own, package layer. It only reads the real
// tree, and stores the changes of a fork in a layer above it. It needs /dev/fuse and the permission to mount,
// and has no requirements on the filesystem with its data. Captures are live: files that no layer has changed
// are read from the real tree as it is now. With a [Freezer] they are read from a frozen state.
//
// Read record, backend and [Serve] first. The package knows the layout of its directory, not the format of a
// layer.
//
// # Layout
//
//	lock                shared while naming layers, exclusive while clearing them
//	snapshots/<id>      a text file: the tree, the time, and the layers
//	forks/<id>          a text file: the same; the last layer is the fork's own
//	layers/<layer>/     a layer; its log marks the directory as ours
//	layers/<layer>/ask  the socket of the process that has it open for writing
//	layers/<layer>/instead     in a merged layer until all records name it: the replaced layers
//	layers/<layer>/superseded  marks a replaced layer, which will be removed soon
//	quotas/<name>       usage and limit of some layers: a [quota.Quota]
//	states/<number>     a text file: the name of a state of a [Freezer]
//	tmp/                records and layers being created
//	trash/              deleted entries
//
// A record is renamed into place when it is complete. A layer that a snapshot names is never written again, so
// sealing takes a few small files: the fork gets a new layer, then the snapshot is created, then it becomes the
// fork's base. The state after each step is valid.
//
// # Servers
//
// Each served tree has a server process, see [Serve], which the first process that wants to mount the tree
// starts and which ends with the last mount. The server of a writable fork holds its layer open, locked with
// flock(2), and listens on a socket in it. Other processes get further mounts of the same filesystem from
// there. Sealing a fork in use makes its server continue on the next layer. A fork that no process has open is
// read through a server of its own.
package fusecow

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

const name = "fusecow"

// Driver opens this backend, which holds any directory of a local filesystem. program returns the program, with
// arguments, that calls [Serve]. Driver calls it when it opens a tree or needs a server.
func Driver(program func() ([]string, error)) snapshot.Driver {
	return snapshot.Driver{Name: name, Automatic: true, Open: func(_ context.Context, place snapshot.Place) (snapshot.Backend, error) {
		b := &backend{dir: filepath.Clean(place.Dir), program: program}
		if err := b.open(place); err != nil {
			return nil, err
		}
		return liveBackend{b}, nil
	}}
}

// OpenFrozen opens this backend with bases that f freezes. program is as in [Driver]. Errors include those of
// f.
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

// open checks whether the backend can have its data in place.Dir, for place.Tree or any other tree. It writes
// nothing. Cost: some ten microseconds. Errors: ErrNotFound (no such tree), ErrNotSupported with the reason.
func (b *backend) open(place snapshot.Place) error {
	if !filepath.IsAbs(place.Dir) {
		return fail("opening", "", because(errs.ErrNotSupported, place.Dir, "the directory for layers is not an absolute path"))
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

// checkFUSE returns nil if this machine can serve trees, or the reason why not.
func checkFUSE() error {
	if err := unix.Access("/dev/fuse", unix.R_OK|unix.W_OK); err != nil {
		mend := "sudo modprobe fuse"
		if errors.Is(err, unix.EACCES) { // it exists
			mend = "sudo chmod 0666 /dev/fuse"
		}
		return because(errs.ErrNotSupported, "/dev/fuse", "cannot open /dev/fuse: "+err.Error(), mend, "ls -l /dev/fuse")
	}
	return nil
}

// serverProgram returns the program that serves trees.
func (b *backend) serverProgram() ([]string, error) {
	program, err := b.program()
	var missing *run.MissingError
	if errors.As(err, &missing) {
		err = because(errs.ErrNotSupported, missing.Name, "this program is not installed", missing.Fix)
	}
	return program, err
}

// checkTree returns nil if the backend can hold the tree at path, or the reason why not.
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
		return because(errs.ErrNotSupported, path, "on a network filesystem ("+f.Type+"), where other machines write")
	case f.IsVirtual(), f.Type == "hugetlbfs":
		return because(errs.ErrNotSupported, path, "generated by the kernel ("+f.Type+"); nothing to copy")
	}
	return nil
}

// A backend has no state except its directory. Any number of them, in any number of processes, may work on the
// same directory.
type backend struct {
	dir     string
	program func() ([]string, error)
	freezer Freezer // nil means live bases
}

func (b *backend) Facts() snapshot.Facts {
	frozen := b.freezer != nil
	return snapshot.Facts{
		Unit: snapshot.ByFile, Durable: true, DirRename: true, Served: true,
		Frozen: frozen, Flushes: frozen, RealInodes: frozen,
	}
}

// Hidden returns the directory of the layers, which no sandbox may see.
func (b *backend) Hidden() []string { return []string{b.dir} }

func (b *backend) snapshotPath(id snapshot.ID) string { return b.dir + "/snapshots/" + string(id) }
func (b *backend) forkPath(id snapshot.ForkID) string { return b.dir + "/forks/" + string(id) }
func (b *backend) layerPath(layer string) string      { return b.dir + "/layers/" + layer }

// fail wraps err in the contract's error, unless it is one. The path of an *fs.PathError becomes its path.
func fail(op, id string, err error) error {
	if err == nil || errs.HasOp(err) {
		return err
	}
	e := &errs.Error{Op: op, Component: name, Subject: id, Kind: kindOf(err), Err: err}
	var at *fs.PathError
	if errors.As(err, &at) {
		e.Path, e.Err = at.Path, at.Err
	}
	var r *errs.Error
	if errors.As(err, &r) {
		e.Hints = r.Hints
	}
	switch {
	case errors.Is(e.Kind, errs.ErrNoSpace):
		e.Hints = []string{"snapfs gc"}
	case errors.Is(err, logfile.ErrDamaged):
		e.Hints = []string{"snapfs doctor SANDBOX --repair"}
	}
	return e
}

// kindOf returns the kind of err, a reason of our own or a system error.
func kindOf(err error) error {
	var r *errs.Error
	switch {
	case errors.As(err, &r):
		return r.Kind
	case errors.Is(err, unix.EPERM), errors.Is(err, os.ErrPermission):
		return errs.ErrDenied
	}
	return errs.KindOfFile(err)
}

// because returns an error of a kind with a text of our own.
func because(kind error, path, why string, hints ...string) error {
	return &fs.PathError{Op: name, Path: path, Err: &errs.Error{Kind: kind, Err: errors.New(why), Hints: hints}}
}
