//go:build linux

package launch

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/treetest"
)

var variable = [8]byte{1, 2, 3}

// A forked process has the program and its image, and neither Go's heap nor the runtime's own memory, the writable
// mappings of this process without a name. The forked process reports with write(2) which addresses it can read.
func TestForkedProcessHasNoCopyOfTheHeapAndRuntime(t *testing.T) {
	im, err := NewImage()
	if err != nil {
		t.Fatal(err)
	}
	defer im.Free()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	read := func(address uintptr) (Step, Cell) {
		s := im.Do(unix.SYS_WRITE, Num(pipe[1]), Num(address), Num(1)).IgnoreErrors()
		return s, s.Result()
	}
	first, data := read(uintptr(unsafe.Pointer(&variable)))
	_, image := read(uintptr(im.Addr(0)))
	_, heap := read(uintptr(unsafe.Pointer(im)))
	var names []string
	var cells []Cell
	for _, m := range unnamedMappings(t, uintptr(im.Addr(0))) {
		_, c := read(m)
		names, cells = append(names, fmt.Sprintf("%x", m)), append(cells, c)
	}
	im.Do(unix.SYS_EXIT_GROUP, Num(0))
	pid, pidfd, _, err := im.Start(first, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	if _, err := unix.Wait4(pid, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	if im.Get(data) != 1 || im.Get(image) != 1 {
		t.Errorf("the forked process read its program's data: %d, its image: %d, want 1 and 1", im.Get(data), im.Get(image))
	}
	if im.Get(heap) != -int(syscall.EFAULT) {
		t.Errorf("reading Go's heap in the forked process = %d, want EFAULT", im.Get(heap))
	}
	if hasC || linked(t) {
		return
	}
	if len(names) == 0 {
		t.Error("found no mapping of Go's runtime")
	}
	for i, c := range cells {
		if im.Get(c) != -int(syscall.EFAULT) {
			t.Errorf("reading %s in the forked process = %d, want EFAULT", names[i], im.Get(c))
		}
	}
	if _, err := os.ReadFile("/proc/self/maps"); err != nil { // this process still has all of its memory
		t.Error(err)
	}
}

// linked reports whether the dynamic linker has loaded this program.
func linked(t *testing.T) bool {
	t.Helper()
	vector, err := unix.Auxv()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(vector, func(v [2]uintptr) bool { return v[0] == atBase && v[1] != 0 })
}

// Whatever the addresses of the program, the vDSO and the dynamic linker are, a forked process has them.
func TestForkedProcessHasItsProgramAtAnyAddress(t *testing.T) {
	const image, linker, vdso = 0x7f00_0000_0000, 0x7f10_0000_0000, 0x7fff_f000_0000
	arena := memoryRange{0xc0_0000_0000, 0xc0_0000_0000 + arenaSize}
	for name, c := range map[string]struct {
		image, linker, vdso, code, data uintptr
		all                             bool // all unused memory is left out, not the heap alone
	}{
		"fixed":                         {image, 0, vdso, 0x40_0000, 0x80_0000, true},
		"position-independent":          {image, linker, vdso, 0x5555_5555_0000, 0x5555_5600_0000, false},
		"position-independent on arm64": {0xffff_0000_0000, linker, vdso, 0xaaaa_aaaa_0000, 0xaaaa_ab00_0000, false},
		"code below the image":          {image, 0, vdso, 0x5555_5555_0000, 0x80_0000, false},
		"data below the image":          {image, 0, vdso, 0x40_0000, 0x5555_5600_0000, false},
		"code above the image":          {image, 0, vdso, image + imageSize, 0x80_0000, false},
		"static above the runtime":      {image, 0, vdso, 0x7fa0_0000_0000, 0x7fa0_0100_0000, true},
		"linked at a fixed address":     {image, linker, vdso, 0x40_0000, 0x80_0000, false},
		"vDSO below the image":          {image, 0, image - 0x10_0000, 0x40_0000, 0x80_0000, false},
		"vDSO above the image":          {image, 0, image + imageSize + 0x200_0000, 0x40_0000, 0x80_0000, true},
		"image below the heap":          {0xb0_0000_0000, 0, vdso, 0x40_0000, 0x80_0000, false},
	} {
		vector := [][2]uintptr{{atBase, c.linker}, {atSysinfoEhdr, c.vdso}, {atRandom, vdso - 0x1000_0000}}
		ranges := rangesAround(c.image, arena, vector, c.code, c.data)
		if all := len(ranges) > 1; all != c.all || ranges[0].start != arena.start || !all && ranges[0] != arena {
			t.Errorf("%s: %x", name, ranges)
		}
		for _, r := range ranges {
			for _, address := range []uintptr{c.image, c.image + imageSize - 1, c.code, c.data, c.vdso, c.vdso - 1} {
				if r.contains(address) {
					t.Errorf("%s: %x is in %x, which is not copied", name, address, r)
				}
			}
		}
	}
}

// madvise stops at the pages with data for the vDSO, which it may not change. The mappings above them, here the vDSO,
// are copied by a later fork all the same.
func TestMemoryAboveASpecialMappingIsCopiedAgain(t *testing.T) {
	var special memoryRange
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var m memoryRange
		if _, err := fmt.Sscanf(line, "%x-%x", &m.start, &m.end); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, "[vvar") && special.start == 0 {
			special.start = m.start
		}
		if strings.Contains(line, "[vdso]") {
			special.end = m.end
		}
	}
	if special.start == 0 || special.end < special.start {
		treetest.Skip(t, "pages of the kernel below the vDSO", "this kernel maps none there")
	}
	advise([]memoryRange{special}, unix.MADV_DONTFORK)
	advise([]memoryRange{special}, unix.MADV_DOFORK)
	flags, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	_, vdso, _ := strings.Cut(string(flags), "[vdso]")
	_, vdso, found := strings.Cut(vdso, "VmFlags:")
	vdso, _, _ = strings.Cut(vdso, "\n")
	if !found || slices.Contains(strings.Fields(vdso), "dc") {
		t.Errorf("the flags of the vDSO's mapping are %q, with dc a fork does not copy it", vdso)
	}
}

// unnamedMappings returns the first addresses of this process's writable private mappings without a name that lie above
// the address from, up to the vDSO's.
func unnamedMappings(t *testing.T, from uintptr) (list []uintptr) {
	t.Helper()
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var start, end uintptr
		var mode string
		fields := strings.Fields(lines.Text())
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &start, &end, &mode); err != nil {
			t.Fatal(err)
		}
		if len(fields) == 6 && strings.HasPrefix(fields[5], "[v") {
			break
		}
		if len(fields) == 5 && mode == "rw-p" && start > from {
			list = append(list, start)
		}
	}
	return list
}
