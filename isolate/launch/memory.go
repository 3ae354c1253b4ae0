//go:build linux

package launch

import (
	"fmt"
	"os"
	"strings"
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
	// vvarPages is at least the number of pages with data for the vDSO, which lie directly below it.
	vvarPages = 16
	// stackGap is the least distance between the end of the main thread's stack and the addresses of mmap(2), in bytes:
	// mmap_base in mm/util.c of Linux.
	stackGap = 128 << 20
)

// Keys of the auxiliary vector (getauxval(3)) with addresses of the dynamic linker, of the main thread's stack and of
// the vDSO.
const (
	atBase        = 7
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
//
// The same holds for a program that the dynamic linker has loaded, such as a position-independent one of some
// distributions.
func unusedMemory(im *Image) []memoryRange {
	heap := uintptr(unsafe.Pointer(im)) &^ (arenaSize - 1)
	arena := memoryRange{heap, heap + arenaSize}
	vector, err := unix.Auxv()
	if hasC || err != nil {
		return []memoryRange{arena}
	}
	start, end := loopBounds()
	data := unsafe.Pointer(&forkers)
	return rangesAround(uintptr(im.Addr(0)), arena, vector, uintptr(start), uintptr(end), uintptr(data))
}

// rangesAround returns the ranges for [unusedMemory] in a program without C code: the addresses from arena up to the
// image, and those of the runtime above the image. vector is the auxiliary vector, and program has addresses of the
// program's code and variables. If one of the ranges contains such an address, or the vDSO, rangesAround returns only
// arena; also if the dynamic linker has loaded the program: its thread has memory that the kernel writes to.
func rangesAround(image uintptr, arena memoryRange, vector [][2]uintptr, program ...uintptr) []memoryRange {
	if image < arena.end {
		return []memoryRange{arena}
	}
	below, above := memoryRange{arena.start, image}, memoryRange{image + imageSize, image + imageSize + runtimeSize}
	limit := func(end uintptr) {
		if end > image {
			above.end = max(min(above.end, end), above.start)
		}
	}
	used := program
	for _, v := range vector {
		switch v[0] {
		case atBase:
			if v[1] != 0 {
				return []memoryRange{arena}
			}
		case atSysinfoEhdr:
			vvar := v[1] - vvarPages*uintptr(os.Getpagesize())
			limit(vvar)
			used = append(used, v[1])
		case atRandom:
			limit(v[1] - stackGap)
		}
	}
	for _, address := range used {
		if below.contains(address) || above.contains(address) {
			return []memoryRange{arena}
		}
	}
	return []memoryRange{below, above}
}

func (r memoryRange) contains(address uintptr) bool { return r.start <= address && address < r.end }

// advise calls madvise(2) with this advice, such as not to copy memory in a fork, for the mapped parts of the ranges.
// If madvise fails, the fork copies that memory.
//
// madvise stops with EINVAL at a mapping that it may not change, such as one of a device. Then advise calls it for each
// mapping: otherwise a later fork would lack what lies above, such as the image of another container.
func advise(ranges []memoryRange, advice int) {
	for _, r := range ranges {
		if madvise(r, advice) == unix.EINVAL {
			for _, m := range mappings() {
				_ = madvise(memoryRange{max(m.start, r.start), min(m.end, r.end)}, advice)
			}
		}
	}
}

// madvise calls madvise(2) for the range, unless that is empty.
func madvise(r memoryRange, advice int) syscall.Errno {
	if r.start >= r.end {
		return 0
	}
	_, _, errno := syscall.RawSyscall(unix.SYS_MADVISE, r.start, r.end-r.start, uintptr(advice))
	return errno
}

// mappings returns the addresses of this process's mappings, or none if the kernel does not say.
func mappings() (list []memoryRange) {
	text, _ := os.ReadFile("/proc/self/maps") // see above
	for line := range strings.Lines(string(text)) {
		var m memoryRange
		if _, err := fmt.Sscanf(line, "%x-%x", &m.start, &m.end); err == nil {
			list = append(list, m)
		}
	}
	return list
}
