//go:build linux

package btrfs

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// A problem is a failure in words of our own.
type problem struct {
	kind      error
	path, why string
	hints     []string
}

func (p *problem) Error() string { return p.why }
func (p *problem) Unwrap() error { return p.kind }

func notFound(why string) error { return &problem{kind: snapshot.ErrNotFound, why: why} }
func corrupt(why string) error  { return &problem{kind: snapshot.ErrCorrupt, why: why} }

// kindOf finds the sentinel that an error amounts to.
func kindOf(err error) error {
	var p *problem
	if errors.As(err, &p) {
		return p.kind
	}
	if kind := snapshot.KindOf(err); kind != nil {
		return kind
	}
	for _, e := range []struct{ os, kind error }{
		{unix.ENOTDIR, snapshot.ErrNotFound},
		{unix.ESTALE, snapshot.ErrNotFound},
		{unix.ENOTEMPTY, snapshot.ErrExists},
		{unix.EMFILE, snapshot.ErrBusy},
		{unix.ENFILE, snapshot.ErrBusy},
		{unix.ENOMEM, snapshot.ErrBusy},
		{unix.EIO, snapshot.ErrCorrupt},
		{unix.EUCLEAN, snapshot.ErrCorrupt},
	} {
		if errors.Is(err, e.os) {
			return e.kind
		}
	}
	return snapshot.ErrNotSupported
}

func hintsFor(kind error, path string) []string {
	if path == "" {
		path = "."
	}
	switch {
	case errors.Is(kind, snapshot.ErrNoSpace):
		return []string{"snapfs gc", "btrfs filesystem usage " + path}
	case errors.Is(kind, snapshot.ErrReadOnly):
		return []string{"mount -o remount,rw \"$(findmnt -no TARGET -T " + path + ")\""}
	case errors.Is(kind, snapshot.ErrCorrupt):
		return []string{"btrfs device stats " + path}
	}
	return nil
}
