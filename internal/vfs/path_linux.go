package vfs

import "os"

// FDPath returns a path in /proc that leads this process and its threads to the file that f
// has open, for calls that take no descriptor. f must stay open.
func FDPath(f *os.File) string { return fdPath(int(f.Fd())) }

func fdPath(fd int) string {
	const digits = "0123456789"
	if fd < 10 {
		return "/proc/self/fd/" + digits[fd:fd+1]
	}
	return fdPath(fd/10) + digits[fd%10:fd%10+1]
}
