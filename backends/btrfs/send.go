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
)

// SendForm returns the format that Send writes, for [snapshot.Sender]: btrfs's own send stream, which every
// snapfs can read.
func (b *Backend) SendForm() snapshot.Form { return snapshot.FormCommands }

// Send writes a snapshot to w, for [snapshot.Sender], by the kernel's send (see btrfs.Send). It needs root,
// and a tree that is a whole subvolume.
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

// openWhole opens the subvolume of the snapshot id, to send it; the caller closes it. ErrNotSupported: the
// tree is only a directory of the subvolume, or has subvolumes inside.
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

// pump copies the output of send, which writes to the descriptor out of a pipe, to w. If w fails or ctx ends,
// it closes the pipe, which ends send.
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
