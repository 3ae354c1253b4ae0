//go:build linux

package layer_test

import (
	"errors"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"golang.org/x/sys/unix"
)

// TestSwitchUpdatesSizesOfOpenFiles for appending and for mapped files.
func TestSwitchUpdatesSizesOfOpenFiles(t *testing.T) {
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

// TestFreezeSeesATruncatedFile even in the middle of the request.
func TestFreezeSeesATruncatedFile(t *testing.T) {
	s := newSmall(t, "tmpfs")
	id := s.make(layer.RootID, "cut", unix.S_IFREG|0o644)
	_, err := s.Write(id, []byte("content"), 0, layer.LoseNothing)
	s.must(err)
	s.must(s.Commit(false))
	s.must(s.Cut(id, 0))
	frozen := s.o.Layers[0]
	s.must(s.Freeze(frozen+"2", func() error { return nil }))
	f, err := layer.Open(layer.Options{Lower: s.o.Lower, Layers: []string{frozen}, ReadOnly: true})
	s.must(err)
	if e, err := f.Lookup(layer.RootID, "cut"); err != nil || e.Size != 0 {
		t.Errorf("it was frozen with %d bytes, %v", e.Size, err)
	}
	s.must(errors.Join(f.Close(), s.Close()))
}

// TestCopyUpIgnoresLowerGrowth: the kernel writes by the size that it has cached.
func TestCopyUpIgnoresLowerGrowth(t *testing.T) {
	s := newSmall(t, "tmpfs")
	s.must(os.WriteFile(s.o.Lower+"/grown", nil, 0o644))
	e, err := s.Lookup(layer.RootID, "grown")
	s.must(err)
	s.must(os.WriteFile(s.o.Lower+"/grown", []byte("0123456789"), 0o644))
	for at, text := range map[int64]string{0: "abc", 20: "z"} {
		_, err := s.Write(e.ID, []byte(text), at, layer.LoseNothing)
		s.must(err)
	}
	buf := make([]byte, 30)
	n, err := s.Read(e.ID, buf, 0)
	if want := "abc" + string(make([]byte, 17)) + "z"; err != nil || string(buf[:n]) != want {
		t.Errorf("it has %q, %v", buf[:n], err)
	}
	s.must(s.Close())
}
