package vfs

import (
	"os"
	"strconv"
)

// FDPath returns a path in /proc that names the open file f in this process, for system calls
// that take no descriptor. It is valid while f is open.
func FDPath(f *os.File) string { return PathTo(int(f.Fd())) }

// PathTo returns a path in /proc that names the open file of a bare descriptor, as [FDPath] does for an
// *os.File.
func PathTo(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
