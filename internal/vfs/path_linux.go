package vfs

import "os"

// FDPath returns a path in /proc that names the open file f in this process, for system calls
// that take no descriptor. It is valid while f is open.
func FDPath(f *os.File) string { return fdPath(int(f.Fd())) }

func fdPath(fd int) string {
	const digits = "0123456789"
	if fd < 10 {
		return "/proc/self/fd/" + digits[fd:fd+1]
	}
	return fdPath(fd/10) + digits[fd%10:fd%10+1]
}
