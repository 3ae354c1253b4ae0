//go:build linux

package layer_test

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWhatIsOpenHasTheLengthOfAState for who appends to it, and for who has it mapped.
func TestWhatIsOpenHasTheLengthOfAState(t *testing.T) {
	b := newBench(t)
	long := strings.Repeat("long\n", 4000)
	b.must(os.Mkdir(b.lower+"/dir", 0o755))
	for _, name := range []string{"shorter", "longer", "dir/mapped"} {
		b.write(b.lower+"/"+name, long)
	}
	b.up()
	b.write(b.mount+"/shorter", "short\n")
	b.freeze()
	state := b.layers[:1]
	b.write(b.mount+"/shorter", long)
	b.write(b.mount+"/longer", "short\n")
	b.write(b.mount+"/dir/mapped", "short\n")
	b.must(os.Rename(b.mount+"/dir", b.mount+"/moved"))
	open := map[string]*os.File{}
	for _, name := range []string{"shorter", "longer", "moved/mapped"} {
		f, err := os.OpenFile(b.mount+"/"+name, os.O_RDWR|os.O_APPEND, 0)
		b.must(err)
		defer f.Close()
		open[name] = f
	}
	mapped, err := unix.Mmap(int(open["moved/mapped"].Fd()), 0, len(long), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	b.must(err)

	b.goTo(state)
	for _, name := range []string{"shorter", "longer"} {
		_, err := open[name].WriteString("more\n")
		b.must(err)
	}
	b.has(b.mount+"/shorter", "short\nmore\n")
	b.has(b.mount+"/longer", long+"more\n")
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	copy(mapped[len(long)-5:], "last\n")
	b.must(unix.Msync(mapped, unix.MS_SYNC))
	b.must(unix.Munmap(mapped))
	b.has(b.mount+"/dir/mapped", long[:len(long)-5]+"last\n")
	for _, f := range open {
		f.Close()
	}
	b.again(false)
	b.has(b.mount+"/longer", long+"more\n")
	b.has(b.mount+"/dir/mapped", long[:len(long)-5]+"last\n")
	b.down()
	for _, p := range b.check(false) {
		t.Error(p)
	}
}
