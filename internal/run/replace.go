package run

import (
	"os"
	"syscall"

	"github.com/snapfs/snapfs/errs"
)

// Replace runs a program in place of this one: in this process, with its streams and environment. It returns only
// with an error, and then this program goes on.
func Replace(path string, args ...string) error {
	return errs.With("starting", path, syscall.Exec(path, append([]string{path}, args...), os.Environ()))
}
