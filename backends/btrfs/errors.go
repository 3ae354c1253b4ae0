//go:build linux

package btrfs

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
)

func notFound(why string) error { return &errs.Error{Kind: errs.ErrNotFound, Err: errors.New(why)} }
func corrupt(why string) error  { return &errs.Error{Kind: errs.ErrCorrupt, Err: errors.New(why)} }

// kindOf returns the error kind of package errs for a system error, such as ErrNotFound for
// ENOENT.
func kindOf(err error) error {
	if kind := errs.KindOf(err); kind != nil {
		return kind
	}
	for _, e := range []struct{ os, kind error }{
		{unix.ENOTDIR, errs.ErrNotFound},
		{unix.ESTALE, errs.ErrNotFound},
		{unix.ENOTEMPTY, errs.ErrExists},
		{unix.EMFILE, errs.ErrBusy},
		{unix.ENFILE, errs.ErrBusy},
		{unix.ENOMEM, errs.ErrBusy},
		{unix.EIO, errs.ErrCorrupt},
		{unix.EUCLEAN, errs.ErrCorrupt},
	} {
		if errors.Is(err, e.os) {
			return e.kind
		}
	}
	return errs.ErrNotSupported
}

// hintsFor returns the default hints for errors of this kind about the directory path: commands that the user
// may run to mend the failure.
func hintsFor(kind error, path string) []string {
	if path == "" {
		path = "."
	}
	switch {
	case errors.Is(kind, errs.ErrNoSpace):
		return []string{"snapfs gc", "btrfs filesystem usage " + errs.Quoted(path)}
	case errors.Is(kind, errs.ErrReadOnly):
		return []string{"mount -o remount,rw \"$(findmnt -no TARGET -T " + errs.Quoted(path) + ")\""}
	case errors.Is(kind, errs.ErrCorrupt):
		return []string{"btrfs device stats " + errs.Quoted(path)}
	}
	return nil
}
