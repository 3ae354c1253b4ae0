package vfs

import "os"

// FDPath is a path by which this process and its threads reach what f has
// open, for calls that take no descriptor. It needs /proc, and f to stay open.
func FDPath(f *os.File) string { return fdPath(int(f.Fd())) }

func fdPath(fd int) string {
	const digits = "0123456789"
	if fd < 10 {
		return "/proc/self/fd/" + digits[fd:fd+1]
	}
	return fdPath(fd/10) + digits[fd%10:fd%10+1]
}
