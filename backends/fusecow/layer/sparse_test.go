//go:build linux

package layer_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/backends/fusecow/layer/sparse"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A large is a lower file that is too large to copy up, with its expected content and mount.
type large struct {
	*bench
	want []byte
	path string
}

const largeSize = 1<<20 + 1234

func newLarge(t *testing.T) *large {
	t.Helper()
	l := &large{bench: newBench(t), want: make([]byte, largeSize)}
	_, _ = rand.NewChaCha8([32]byte{}).Read(l.want) // never fails
	l.must(os.WriteFile(l.lower+"/large", l.want, 0o644))
	if to, err := os.Create(l.lower + "/other"); true {
		l.must(err)
		from, err := os.Open(l.lower + "/large")
		l.must(err)
		if vfs.CloneFile(to, from) == nil {
			t.Fatal("the blocks of this filesystem can be shared: it is the wrong one for this test")
		}
		l.must(errors.Join(to.Close(), from.Close()))
	}
	l.copyUpLimit, l.path = 1, l.mount+"/large"
	l.up()
	return l
}

// put writes at an offset.
func (l *large) put(text string, at int) {
	l.Helper()
	f, err := os.OpenFile(l.path, os.O_WRONLY, 0)
	l.must(err)
	_, err = f.WriteAt([]byte(text), int64(at))
	l.must(errors.Join(err, f.Close()))
	if end := at + len(text); end > len(l.want) {
		l.want = append(l.want, make([]byte, end-len(l.want))...)
	}
	copy(l.want[at:], text)
}

func (l *large) cut(size int) {
	l.Helper()
	l.must(os.Truncate(l.path, int64(size)))
	l.want = append(l.want, make([]byte, max(size-len(l.want), 0))...)[:size]
}

// check compares the file with its expected content.
func (l *large) check(when string) {
	l.Helper()
	got, err := os.ReadFile(l.path)
	l.must(err)
	if !bytes.Equal(got, l.want) {
		at := 0
		for at < min(len(got), len(l.want)) && got[at] == l.want[at] {
			at++
		}
		l.Fatalf("%s: %d bytes, and byte %d differs, want %d", when, len(got), at, len(l.want))
	}
}

// holds returns the bytes of content in the layers.
func (l *large) holds() (sum int64) {
	l.Helper()
	for _, path := range l.layers {
		l.must(filepath.WalkDir(path+"/data", func(path string, _ os.DirEntry, err error) error {
			st, serr := vfs.Lstat(unix.AT_FDCWD, path)
			if !st.IsDir() {
				sum += st.Blocks * 512
			}
			return errors.Join(err, serr)
		}))
	}
	return sum
}

// TestChangedByteCostsOneBlock, wherever it is written, in several layers, also after a crash.
func TestChangedByteCostsOneBlock(t *testing.T) {
	l := newLarge(t)
	l.put("x", 123_456)
	l.check("after a byte")
	if got := l.holds(); got > 2*4096 {
		t.Errorf("a byte takes %d bytes", got)
	}
	l.put("over two blocks", 8190)
	l.put("at the end", len(l.want)-3)
	l.put("beyond it", len(l.want)+100_000)
	l.check("after some writes")
	l.again(false)
	l.check("mounted anew")
	for i := range 12 {
		l.freeze()
		l.put("layer", i*70_000)
		l.check("frozen")
	}
	if got := l.holds(); got > 2*largeSize {
		t.Errorf("13 layers hold %d bytes", got)
	}
	l.again(false)
	l.check("frozen and mounted anew")

	l.cut(500_001)
	l.cut(900_000)
	l.check("cut and lengthened")
	l.sync()
	l.again(true)
	l.check("after a crash")
	l.put("z", 700_000)
	l.check("written to where it was cut off")
	l.down()
	l.sound()
}

// TestTruncatedContentDoesNotComeBack: a crash forgets what was not synced, but never shows the cut content of
// a file that was extended again.
func TestTruncatedContentDoesNotComeBack(t *testing.T) {
	l := newLarge(t)
	l.put("x", 1)
	l.sync()
	l.cut(10)
	l.cut(900_000)
	l.again(true)
	l.check("after a crash")
}

// TestPunchedHoleReadsAsZeros, not as the source.
func TestPunchedHoleReadsAsZeros(t *testing.T) {
	l := newLarge(t)
	punch := func(mode uint32, off, size int) {
		t.Helper()
		f, err := os.OpenFile(l.path, os.O_WRONLY, 0)
		l.must(err)
		l.must(errors.Join(unix.Fallocate(int(f.Fd()), mode, int64(off), int64(size)), f.Close()))
		if end := off + size; mode&unix.FALLOC_FL_KEEP_SIZE == 0 && end > len(l.want) {
			l.want = append(l.want, make([]byte, end-len(l.want))...)
		}
		if mode&(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_ZERO_RANGE) != 0 {
			clear(l.want[off:min(off+size, len(l.want))])
		}
		l.check("fallocate")
	}
	punch(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 100_000, 50_000)
	punch(unix.FALLOC_FL_ZERO_RANGE, 4096, 8192)
	punch(0, 200_000, 50_000)
	punch(unix.FALLOC_FL_ZERO_RANGE, len(l.want)-10, 100_000)
	punch(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, len(l.want)-5, 5000)
	punch(0, len(l.want), 50_000)
	l.put("again", 120_000)
	l.check("written to")
	l.sync()
	l.again(true)
	l.check("after a crash")
}

// TestSparseUpperReportsDataAndHoles like a whole file.
func TestSparseUpperReportsDataAndHoles(t *testing.T) {
	l := newLarge(t)
	l.cut(3 << 20)
	l.put("x", 2<<20)
	f, err := os.Open(l.path)
	l.must(err)
	defer f.Close()
	seek := func(off int64, whence int, want int64) {
		t.Helper()
		if got, err := unix.Seek(int(f.Fd()), off, whence); got != want {
			t.Errorf("from %d on, %d: %d, %v; want %d", off, whence, got, err, want)
		}
	}
	const end = (largeSize + 4095) &^ 4095
	seek(5000, unix.SEEK_DATA, 5000)
	hole, err := unix.Seek(int(f.Fd()), 5000, unix.SEEK_HOLE)
	if err != nil || hole < largeSize || hole > end {
		t.Errorf("the first hole is at %d, %v, want about %d", hole, err, largeSize)
	}
	seek(end, unix.SEEK_DATA, 2<<20)
	seek(2<<20+4096, unix.SEEK_DATA, -1)
	seek(2<<20, unix.SEEK_HOLE, 2<<20+4096)
	if st, err := vfs.Lstat(unix.AT_FDCWD, l.path); err != nil || st.Blocks*512 < largeSize {
		t.Errorf("it is told to take %d bytes, %v", st.Blocks*512, err)
	}
	l.copies()
}

// copies compares copies by programs that look for holes.
func (l *large) copies() {
	l.Helper()
	to := filepath.Dir(l.mount) + "/copy"
	l.must(exec.Command("cp", "--sparse=always", l.path, to).Run())
	got, err := os.ReadFile(to)
	l.must(err)
	if !bytes.Equal(got, l.want) {
		l.Error("cp(1) makes another file of it")
	}
}

// TestSparseUpperOfAChangedLowerIsStale: a mixture with the user's new content would be no file of anybody.
func TestSparseUpperOfAChangedLowerIsStale(t *testing.T) {
	l := newLarge(t)
	l.put("mine", 8192)
	lower, err := os.OpenFile(l.lower+"/large", os.O_WRONLY, 0)
	l.must(err)
	_, err = lower.WriteAt([]byte("theirs"), 500_000)
	l.must(errors.Join(err, lower.Close()))
	l.again(false)
	if _, err := os.ReadFile(l.path); !errors.Is(err, unix.ESTALE) {
		t.Errorf("read: %v, want ESTALE", err)
	}
	f, err := os.Open(l.path)
	l.must(err)
	buf := make([]byte, 4096)
	_, err = f.ReadAt(buf, 8192)
	l.must(errors.Join(err, f.Close()))
	if !bytes.Equal(buf, l.want[8192:8192+4096]) {
		t.Error("what was brought up cannot be read")
	}
	l.must(os.Chmod(l.path, 0o600))
}

// TestCopiedSparseUpperIsRefused: a backup that fills holes would hide the source.
func TestCopiedSparseUpperIsRefused(t *testing.T) {
	l := newLarge(t)
	l.put("mine", 8192)
	l.down()
	var content string
	l.must(filepath.WalkDir(l.layers[0]+"/data", func(path string, e os.DirEntry, err error) error {
		if e.Type().IsRegular() {
			content = path
		}
		return err
	}))
	all, err := os.ReadFile(content)
	l.must(err)
	l.must(errors.Join(os.WriteFile(content+".copy", all, 0o600), os.Rename(content+".copy", content)))
	l.up()
	if _, err := os.ReadFile(l.path); !errors.Is(err, unix.EIO) {
		t.Errorf("read: %v, want EIO", err)
	}
	l.down()
	found, err := layer.Check(layer.Options{Lower: l.lower, Layers: l.layers}, false)
	l.must(err)
	if len(found) != 1 {
		t.Errorf("found: %v", found)
	}
}

// TestSparseUpperWithoutItsFile: after a power cut before the file was on the disk, the lower file shows.
func TestSparseUpperWithoutItsFile(t *testing.T) {
	l := newLarge(t)
	before := bytes.Clone(l.want)
	l.put("mine", 8192)
	l.sync()
	l.kill()
	l.must(os.RemoveAll(l.layers[0] + "/data"))
	l.must(os.Mkdir(l.layers[0]+"/data", 0o700))
	l.want = before
	l.up()
	l.check("without its content")
	l.put("mine", 8192)
	l.check("written to again")
}

// TestSparseUpperSurvivesCompaction of the log.
func TestSparseUpperSurvivesCompaction(t *testing.T) {
	l := newLarge(t)
	l.put("mine", 8192)
	l.down()
	l.must(layer.Rewrite(layer.Options{Lower: l.lower, Layers: l.layers}))
	l.up()
	l.check("rewritten")
}

// sound checks that the layers have no problems.
func (b *bench) sound() {
	b.Helper()
	found, err := layer.Check(layer.Options{Lower: b.lower, Layers: b.layers}, false)
	b.must(err)
	for _, p := range found {
		b.Error(p)
	}
}

// TestAllocationHidesNoSource, even after the kernel has read the allocated space, for readahead or for a
// backup of the layers.
func TestAllocationHidesNoSource(t *testing.T) {
	l := newLarge(t)
	l.put("x", 100)
	allocate := func(mode uint32, off, size int64) {
		t.Helper()
		f, err := os.OpenFile(l.path, os.O_RDWR, 0)
		l.must(err)
		l.must(errors.Join(unix.Fallocate(int(f.Fd()), mode, off, size), f.Close()))
		l.must(filepath.WalkDir(l.layers[len(l.layers)-1]+"/data", func(path string, e os.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				_, err = os.ReadFile(path)
			}
			return err
		}))
		l.again(false)
	}
	allocate(0, 0, 500_000)
	l.check("allocated in it")
	allocate(unix.FALLOC_FL_KEEP_SIZE, largeSize-10_000, 50_000)
	l.check("allocated beyond its end")
	allocate(0, 900_000, largeSize-900_000+50_000)
	l.want = append(l.want, make([]byte, 50_000)...)
	l.check("made longer")
}

// TestHugePagesReportNoHoles: one written byte makes the whole page data.
func TestHugePagesReportNoHoles(t *testing.T) {
	treetest.NeedRoot(t)
	for huge, want := range map[string]bool{"never": true, "always": false} {
		dir := treetest.Dir(t)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(huge, err)
			}
		}
		c, err := mount.Fsopen("tmpfs")
		must(err)
		must(errors.Join(c.Set("size", "16m"), c.Set("huge", huge)))
		mnt, err := c.Mount(0)
		c.Close()
		must(err)
		must(mount.MoveMount(mnt, dir))
		must(mnt.Close())
		f, err := os.Create(dir + "/file")
		must(err)
		if got := sparse.ReportsHoles(int(f.Fd())); got != want {
			t.Errorf("huge=%s: %v", huge, got)
		}
		must(errors.Join(f.Close(), mount.Unmount(dir)))
	}
}
