//go:build unix

package view

import (
	"errors"
	"os"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// onlyOurs returns ErrDenied unless the directory dir belongs to this user and nobody else can write to it.
// Another user could otherwise replace the views in it, which show the files of sandboxes.
func onlyOurs(dir string) error {
	if _, err := os.Lstat(dir); err != nil {
		return errs.With("making the directory of views", dir, err)
	}
	if !vfs.IsPrivate(dir) {
		return &errs.Error{Op: "making the directory of views", Path: dir, Kind: errs.ErrDenied, Err: errors.New("another user owns it or can write to it")}
	}
	return nil
}
