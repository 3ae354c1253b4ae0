package run

import (
	"os"
	"syscall"

	"github.com/snapfs/snapfs/errs"
)

// Replace runs a program in place of this one, in this process and with its streams and environment
// (execve(2)). It returns only after an error, and this program then continues.
func Replace(path string, args ...string) error {
	return errs.With("starting", path, syscall.Exec(path, append([]string{path}, args...), os.Environ()))
}
