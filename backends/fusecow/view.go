//go:build linux

package fusecow

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// snapshotView and forkView make mounts of a snapshot and of a fork when the engine needs one, for
// [snapshot.Served].
type (
	snapshotView struct {
		b  *backend
		id snapshot.ID
	}
	forkView struct {
		b  *backend
		id snapshot.ForkID
		// hide are the names that the fork does not show of its lower.
		hide []string
	}
)

var _ snapshot.NameHider = forkView{}

// Hiding returns a view of the fork in whose mounts these paths are invisible, for [snapshot.NameHider].
func (l forkView) Hiding(paths []string) snapshot.Served {
	l.hide = paths
	return l
}

// Mount returns a detached, read-only mount of the snapshot, for [snapshot.Served]. It starts a server
// process for that. The caller closes fd.
func (s snapshotView) Mount(_ context.Context, _ bool) (fd int, err error) {
	r, err := s.b.snapshot(s.id)
	var root *os.File
	if err == nil {
		root, err = s.b.startServer(&startRequest{Record: r})
	}
	if err == nil {
		fd, err = dupFD(root)
	}
	return fd, fail("mounting", string(s.id), err)
}

// dupFD closes the file f and returns a duplicate of its descriptor, for a caller that needs a bare number.
// The caller closes it.
func dupFD(f *os.File) (int, error) {
	defer f.Close()
	return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
}

// Mount returns a detached mount of the fork, on which writes fail if readOnly is set, for [snapshot.Served].
// It comes from the process that serves the fork, which Mount starts if needed. The caller closes fd.
func (l forkView) Mount(ctx context.Context, readOnly bool) (fd int, err error) {
	var root *os.File
	err = l.b.retryBusy(ctx, l.b.forkPath(l.id), func() (again bool, err error) {
		root, err = l.b.mountFork(l.id, readOnly, l.hide)
		return errors.Is(err, unix.EBUSY), err
	})
	if err == nil {
		fd, err = dupFD(root)
	}
	return fd, fail("mounting", string(l.id), err)
}

// patience bounds the wait for another process to close a layer or to reply, which usually takes
// milliseconds. After that the operation fails with ErrBusy.
const patience = 5 * time.Second

// retryBusy calls try, a request to another process, until it returns again = false, for patience (5 s) at
// most. Then it returns ErrBusy about path.
func (b *backend) retryBusy(ctx context.Context, path string, try func() (again bool, err error)) error {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := retry(within, try)
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		return because(errs.ErrBusy, path, "a process has the layer mounted")
	}
	return err
}

// mountFork returns a detached mount of the fork id, which the caller closes. It comes from the fork's
// server, a process that mountFork starts if there is none; with readOnly that process does not lock the
// fork's layer. From then on the server hides the names in hide, unless that is empty. EBUSY means that a
// server is just starting or exiting.
func (b *backend) mountFork(id snapshot.ForkID, readOnly bool, hide []string) (*os.File, error) {
	r, err := b.fork(id)
	if err != nil {
		return nil, err
	}
	names, err := writeNames(hide)
	if err != nil {
		return nil, err
	}
	defer names.Close() // it may be nil
	root, err := b.requestLayer(r.upper(), request{Mount: true, ReadOnly: readOnly, Hide: names != nil, file: names})
	if !errors.Is(err, errNotServed) {
		return root, err
	}
	if readOnly {
		id = "" // a read-only server does not lock the layer
	}
	return b.startServer(&startRequest{Fork: id, Record: r, Hide: names != nil, names: names})
}

// startServer starts a process that serves a fork or a tree over FUSE, as the request what says, and returns
// the first, detached mount of that process, which the caller closes.
func (b *backend) startServer(what *startRequest) (*os.File, error) {
	what.Dir = b.dir
	program, err := b.serverProgram()
	if err == nil {
		what.Lower, err = b.lowerPath(&what.Record)
	}
	if err != nil {
		return nil, err
	}
	p, theirs, err := fdsock.Pair()
	if err != nil {
		return nil, err
	}
	defer p.Close() //nolint:errcheck // nothing is written
	proc, err := run.Background(program, nil, theirs)
	theirs.Close()
	if err != nil {
		return nil, &os.PathError{Op: "start", Path: program[0], Err: err}
	}
	go func() { _, _ = proc.Wait() }() // it replied how it ended, or the layer is recovered as after a crash
	root, _, err := exchange(p, what, what.names)
	if errors.Is(err, errHungUp) {
		err = because(errs.ErrCorrupt, program[0], "the server ended before it served the tree")
	}
	return root, err
}

// lowerPath returns the directory below the layers of a record: the real tree, or its frozen state if the record
// names one.
func (b *backend) lowerPath(r *record) (string, error) {
	if r.State == "" {
		return r.Tree, nil
	}
	if b.freezer == nil {
		return "", because(errs.ErrNotSupported, r.Tree, "the tree was frozen by another backend")
	}
	return b.freezer.Path(r.State)
}

// options returns the options with which [layer.Open] opens the layers (directories with changes) of the
// snapshot or fork with the record r.
func (b *backend) options(r *record) (layer.Options, error) {
	lower, err := b.lowerPath(r)
	return b.optionsOn(lower, r), err
}

func (b *backend) optionsOn(lower string, r *record) layer.Options {
	o := layer.Options{
		Lower: lower, Layers: b.layerPaths(r), Indexes: r.Indexes, Base: r.Own, Frozen: r.State != "",
	}
	if !o.Frozen && !r.Taken.IsZero() {
		o.Since = vfs.Timestamp{Sec: r.Taken.Unix(), Nsec: uint32(r.Taken.Nanosecond())}
	}
	return o
}

func (b *backend) layerPaths(r *record) (all []string) {
	for _, l := range r.Layers {
		all = append(all, b.layerPath(l))
	}
	return all
}

// recover repairs the last layer of the fork with the record r after the process that served the fork was
// killed while it wrote there.
func (b *backend) recover(r *record) error {
	o, err := b.options(r)
	if err != nil {
		return err
	}
	return layer.Recover(o)
}

// lockLayer keeps other processes from opening the layer name for writing until release is called, and
// reports whether the layer was closed properly. It waits a while for a process that has the layer open.
func (b *backend) lockLayer(ctx context.Context, name string) (clean bool, release func(), err error) {
	err = b.retryBusy(ctx, b.layerPath(name), func() (bool, error) {
		clean, release, err = logfile.TryLock(b.layerPath(name))
		return errors.Is(err, unix.EBUSY), err
	})
	return clean, release, err
}

func (b *backend) socketPath(layer string) string { return filepath.Join(b.layerPath(layer), "ask") }
