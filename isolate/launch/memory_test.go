//go:build linux

package launch

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
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
	if hasC {
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
