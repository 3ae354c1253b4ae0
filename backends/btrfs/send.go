//go:build linux

package btrfs

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/sendstream"
	"github.com/snapfs/snapfs/internal/vfs"
)

// SendForm implements [snapshot.Sender]. The kernel writes the form that every snapfs reads.
func (b *Backend) SendForm() snapshot.Form { return snapshot.FormCommands }

// ReceiveForm implements [snapshot.Receiver].
func (b *Backend) ReceiveForm() snapshot.Form { return snapshot.FormCommands }

// Send implements [snapshot.Sender] by the kernel's send. It needs root, and a tree that is a whole
// subvolume.
func (b *Backend) Send(ctx context.Context, w io.Writer, s snapshot.Sending) error {
	return b.fail("sending", string(s.ID), b.send(ctx, w, s))
}

func (b *Backend) send(ctx context.Context, w io.Writer, s snapshot.Sending) error {
	if os.Geteuid() != 0 {
		return &errs.Error{Kind: errs.ErrNotSupported, Err: errors.New("only root can use the kernel's send")}
	}
	r, err := b.enter()
	if err != nil {
		return notFoundIfMissing(err)
	}
	defer r.close()
	tree, _, err := r.openWhole(s.ID)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	var parent uint64
	if s.Base != "" {
		base, info, err := r.openWhole(s.Base)
		if err != nil {
			return err
		}
		defer unix.Close(base) // the id is not reused as long as the subvolume is open
		parent = info.ID
	}
	return pump(ctx, w, func(out int) error { return btrfs.Send(tree, out, parent) })
}

// openWhole opens a snapshot that is a whole subvolume. Errors: ErrNotSupported.
func (r dataDir) openWhole(id snapshot.ID) (int, btrfs.Subvolume, error) {
	m, info, err := r.load(snapshots, string(id))
	if err != nil {
		return -1, info, err
	}
	if m.within != "." {
		return -1, info, &errs.Error{Kind: errs.ErrNotSupported, Path: m.tree, Err: errors.New("the tree is a directory of a subvolume, and the kernel sends whole subvolumes")}
	}
	fd, err := r.open(snapshots + "/" + string(id) + "/" + treeName)
	if err != nil {
		return -1, info, notFoundIfMissing(err)
	}
	nested, err := nestedIn(fd, ".")
	if err == nil && len(nested) > 0 {
		err = &errs.Error{Kind: errs.ErrNotSupported, Path: m.tree, Err: errors.New("the tree contains subvolumes, which the kernel does not send")}
	}
	if err != nil {
		unix.Close(fd)
		return -1, info, err
	}
	return fd, info, nil
}

// pump copies the output of send through a pipe to w. If w fails or ctx ends, it closes the pipe,
// which ends send.
func pump(ctx context.Context, w io.Writer, send func(out int) error) error {
	in, out, err := os.Pipe()
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		err := send(int(out.Fd()))
		out.Close()
		sent <- err
	}()
	stop := context.AfterFunc(ctx, func() { in.Close() })
	_, err = io.Copy(w, in)
	if stop() {
		in.Close()
	}
	serr := <-sent
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && !errors.Is(err, os.ErrClosed):
		return err
	case serr != nil:
		return &os.PathError{Op: "send", Err: serr}
	}
	return nil
}

// Receive implements [snapshot.Receiver]. It executes the stream in a new subvolume, which gets its
// name when the stream is complete.
func (b *Backend) Receive(ctx context.Context, in io.Reader, id, base snapshot.ID, tree snapshot.Tree) (snapshot.Snapshot, error) {
	s, err := b.receive(ctx, in, id, base, tree)
	return s, b.fail("receiving", string(id), err)
}

func (b *Backend) receive(ctx context.Context, in io.Reader, id, base snapshot.ID, tree snapshot.Tree) (s snapshot.Snapshot, err error) {
	if err := valid(id); err != nil {
		return s, err
	}
	r, err := b.openOrCreate()
	if err != nil {
		return s, err
	}
	defer r.close()
	src := -1
	m := mark{kind: snapshots, tree: tree.Path, within: ".", taken: vfs.Now()}
	if base != "" {
		bm, info, err := r.load(snapshots, string(base))
		if err != nil {
			return s, err
		}
		if src, _, err = r.openWhole(base); err != nil {
			return s, err
		}
		defer unix.Close(src)
		m.line = bm.descent(info.Born)
	}
	e, err := r.begin(ctx, snapshots, string(id), m)
	if err != nil {
		return s, err
	}
	defer e.close()
	if err := e.fill(ctx, in, src); err != nil {
		return s, errors.Join(err, e.giveUp())
	}
	return b.snapshotOf(id, m), nil
}

// fill makes the entry's tree from a copy of the subvolume src, or from an empty one if src is
// negative, and executes the stream in it.
func (e *entry) fill(ctx context.Context, in io.Reader, src int) error {
	const half = "half"
	if err := fault.Point(ctx, "make the subvolume"); err != nil {
		return err
	}
	var err error
	if src >= 0 {
		err = snapshotInto(src, e.fd, half, false)
	} else {
		err = btrfs.Create(e.fd, half)
	}
	if err != nil {
		return &os.PathError{Op: "make a subvolume", Path: e.path, Err: err}
	}
	fd, err := e.data.open(e.path + "/" + half)
	if err != nil {
		return err
	}
	root := os.NewFile(uintptr(fd), half)
	defer root.Close()
	if err := sendstream.Apply(ctx, root, in, sendstream.Options{OnBase: src >= 0}); err != nil {
		return err
	}
	if err := fault.Point(ctx, "seal the subvolume"); err != nil {
		return err
	}
	if err := btrfs.SetReadOnly(fd, true); err != nil {
		return &os.PathError{Op: "make read-only", Path: e.path, Err: err}
	}
	if err := fault.Point(ctx, "name the tree"); err != nil {
		return err
	}
	if err := vfs.SyncFS(fd); err != nil { // the name must not reach the disk before the content
		return &os.PathError{Op: "sync", Path: e.path, Err: err}
	}
	if err := unix.Renameat(e.fd, half, e.fd, treeName); err != nil {
		return &os.PathError{Op: "rename", Path: e.path, Err: err}
	}
	return nil
}
