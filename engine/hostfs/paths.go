package hostfs

import (
	"errors"
	"os"
	"syscall"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

func OpenBeneath(dir *os.File, path string) (*os.File, error) {
	return vfs.OpenBeneath(int(dir.Fd()), path, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
}

func Relative(path, prefix string) string {
	if path == prefix {
		return "."
	}
	return path[len(prefix)+1:]
}

func LookError(path string, err error) error {
	var done *errs.Error
	if errors.As(err, &done) {
		return err
	}
	return &errs.Error{Op: "looking at", Path: path, Kind: errs.KindOf(err), Err: err}
}
