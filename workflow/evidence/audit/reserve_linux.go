package audit

import (
	"errors"
	"os"

	"github.com/snapfs/snapfs/errs"
	"golang.org/x/sys/unix"
)

// reserve allocates disk space beyond the end of the evidence log at path, if the filesystem can, so that
// later records fit on a full disk. size is the size of the file, which stays.
func (l *Log) reserve(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return errs.With("opening the record of "+l.sandbox, path, err)
	}
	defer f.Close()
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, size, reserve)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return errs.With("reserving space for the record of "+l.sandbox, path, err)
}
