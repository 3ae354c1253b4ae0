//go:build linux

package launch

import (
	"os"
	"unsafe"
)

// CommandLine returns the address and size of this program's arguments in memory, which the kernel stores
// consecutively, so that a forked process can blank its copy of them. The strings of os.Args still point there, unless
// the program changed them.
func CommandLine() (start uintptr, size int) {
	for i, a := range os.Args {
		at := uintptr(unsafe.Pointer(unsafe.StringData(a)))
		if i == 0 {
			start = at
		}
		if at != start+uintptr(size) {
			break
		}
		size += len(a) + 1
	}
	return start, size
}
