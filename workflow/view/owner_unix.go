//go:build unix

package view

import (
	"errors"
	"os"
	"syscall"

	"github.com/snapfs/snapfs/errs"
)

// onlyOurs returns ErrDenied unless the directory dir belongs to this user and nobody else can write to it.
// Another user could otherwise replace the views in it, which show the files of sandboxes.
func onlyOurs(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return errs.With("making the directory of views", dir, err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return &errs.Error{Op: "making the directory of views", Path: dir, Kind: errs.ErrDenied, Err: errors.New("another user owns it or can write to it")}
	}
	return nil
}
