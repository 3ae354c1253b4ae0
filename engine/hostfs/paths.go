package hostfs

import (
	"errors"
	"os"
	"syscall"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// OpenBeneath opens the directory at path, which cannot lead out of dir.
func OpenBeneath(dir *os.File, path string) (*os.File, error) {
	return vfs.OpenBeneath(int(dir.Fd()), path, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
}

// Relative returns path relative to prefix, which must hold it.
func Relative(path, prefix string) string {
	if path == prefix {
		return "."
	}
	return path[len(prefix)+1:]
}

// LookError adds the path to an error of reading it, unless the error has one.
func LookError(path string, err error) error {
	var done *errs.Error
	if errors.As(err, &done) {
		return err
	}
	return &errs.Error{Op: "reading", Path: path, Kind: errs.KindOf(err), Err: err}
}
