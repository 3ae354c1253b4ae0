//go:build linux

package launch

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A memoryRange is the memory from the address start up to the address end.
type memoryRange struct{ start, end uintptr }

const (
	// arenaSize is the size in bytes of the first arena of Go's heap: heapArenaBytes of runtime/malloc.go, for 64 bits.
	arenaSize = 64 << 20
	// runtimeSize is more than the 1.2 GB of addresses that Go's runtime maps at its start beside the heap. The runtime
	// leaves most of them unused (runtime/mpagealloc_64bit.go).
	runtimeSize = 3 << 29
	// vvarSize is at least the size of the pages with data for the vDSO, which lie directly below it.
	vvarSize = 64 << 10
	// stackGap is the least distance between the end of the main thread's stack and the addresses of mmap(2), in bytes:
	// mmap_base in mm/util.c of Linux.
	stackGap = 128 << 20
)

// Keys of the auxiliary vector (getauxval(3)) with addresses of the vDSO and of the main thread's stack.
const (
	atRandom      = 25
	atSysinfoEhdr = 33
)

// unusedMemory returns the ranges of this process's memory that a process which executes the image im does not use:
// Go's heap, its goroutines' stacks and the runtime's own data. Without copies of them the fork is faster, the
// supervisor's later writes cause no copies of pages, and pid 1 holds nothing of the supervisor's heap.
//
// The ranges leave out the program with its variables, the image, the main thread's stack and the kernel's pages with
// the vDSO. In a program with C code they are the heap alone: a forked process must have the memory of C's threads,
// because the kernel writes to it (rseq(2)).
func unusedMemory(im *Image) []memoryRange {
	heap := uintptr(unsafe.Pointer(im)) &^ (arenaSize - 1)
	arena := memoryRange{heap, heap + arenaSize}
	vector, err := unix.Auxv()
	image := uintptr(im.Addr(0))
	if hasC || err != nil || image < arena.end {
		return []memoryRange{arena}
	}
	above := memoryRange{image + imageSize, image + imageSize + runtimeSize}
	limit := func(end uintptr) {
		if end > image {
			above.end = max(min(above.end, end), above.start)
		}
	}
	for _, v := range vector {
		switch v[0] {
		case atSysinfoEhdr:
			limit(v[1] - vvarSize)
		case atRandom:
			limit(v[1] - stackGap)
		}
	}
	return []memoryRange{{arena.start, image}, above}
}

// advise calls madvise(2) with this advice, such as not to copy memory in a fork, for the mapped parts of the ranges.
// If madvise fails, the fork copies that memory.
func advise(ranges []memoryRange, advice int) {
	for _, r := range ranges {
		syscall.RawSyscall(unix.SYS_MADVISE, r.start, r.end-r.start, uintptr(advice)) //nolint:errcheck // see above
	}
}
