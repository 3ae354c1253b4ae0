package hostfs

import (
	"os"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/internal/vfs"
)

// OpenBeneath opens the directory at path below dir; no symbolic link in path can lead out of dir. The caller
// closes it.
func OpenBeneath(dir *os.File, path string) (*os.File, error) {
	return vfs.OpenBeneath(int(dir.Fd()), path, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
}

// Relative returns path relative to prefix, which is path or one of its parents; "." if they are equal. Both
// must be clean, and either absolute or relative to the same directory.
func Relative(path, prefix string) string {
	if path == prefix {
		return "."
	}
	return strings.TrimPrefix(path[len(prefix):], "/") // no slash follows the prefix "/"
}
