//go:build linux

package layer_test

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer/quota"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

const copiedSize = 8 << 20

// copyOf copies a whole file by copy_file_range(2), as cp(1) does, and returns the size of the copy.
func copyOf(t *testing.T, from, to string) int {
	t.Helper()
	src, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	done := 0
	for {
		n, err := unix.CopyFileRange(int(src.Fd()), nil, int(dst.Fd()), nil, 1<<30, 0)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return done
		}
		done += n
	}
}

// TestCopySharesBlocks copies a lower file, a file created here, and a copy.
func TestCopySharesBlocks(t *testing.T) {
	b := newBenchIn(t, treetest.Btrfs(t))
	want := make([]byte, copiedSize)
	_, err := rand.Read(want)
	b.must(err)
	b.must(os.WriteFile(b.lower+"/below", want, 0o644))
	b.up()
	b.must(os.WriteFile(b.mount+"/above", want, 0o644))
	b.command("sync")
	before := free(t, b.lower)
	for from, to := range map[string]string{"below": "one", "above": "two", "one": "three"} {
		if from == "one" {
			copyOf(t, b.mount+"/below", b.mount+"/one")
		}
		if n := copyOf(t, b.mount+"/"+from, b.mount+"/"+to); n != copiedSize {
			t.Errorf("%d bytes of %s were copied", n, from)
		}
		b.has(b.mount+"/"+to, string(want))
	}
	b.command("sync")
	if took := before - free(t, b.lower); took > copiedSize/2 {
		t.Errorf("three copies of %d bytes take %d", copiedSize, took)
	}
	b.again(true)
	b.has(b.mount+"/three", string(want))
}

// free syncs a filesystem and returns its free space.
func free(t *testing.T, dir string) int64 {
	t.Helper()
	d, err := vfs.OpenDir(unix.AT_FDCWD, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var st unix.Statfs_t
	if err := errors.Join(unix.Syncfs(int(d.Fd())), unix.Fstatfs(int(d.Fd()), &st)); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bfree) * st.Bsize
}

// TestCopyStopsAtTheQuota: a copy stops at a block boundary, like a write, and leaves what it has copied.
func TestCopyStopsAtTheQuota(t *testing.T) {
	b := newBench(t)
	b.must(os.WriteFile(b.lower+"/below", make([]byte, copiedSize), 0o644))
	b.up()
	const most = 5<<20 + 123<<10
	q := b.quota(quota.Usage{Bytes: most})
	src, err := os.Open(b.mount + "/below")
	b.must(err)
	defer src.Close()
	dst, err := os.Create(b.mount + "/copy")
	b.must(err)
	defer dst.Close()
	done := int64(0)
	for {
		var n int
		if n, err = unix.CopyFileRange(int(src.Fd()), nil, int(dst.Fd()), nil, copiedSize, 0); err != nil {
			break
		}
		done += int64(n)
	}
	if used := q.Used().Bytes; !errors.Is(err, unix.EDQUOT) || used > most || used < most-4096 {
		t.Errorf("it ends with %v at %d of %d", err, used, most)
	}
	if st, err := dst.Stat(); err != nil || st.Size() != done {
		t.Errorf("%d bytes were copied, and there are %v, %v", done, st.Size(), err)
	}
}

// TestCopyReadsASparseUpper: the kernel falls back to reading and writing, and the copy is complete.
func TestCopyReadsASparseUpper(t *testing.T) {
	l := newLarge(t)
	l.put("some bytes", 300_000)
	copyOf(t, l.path, l.mount+"/copy")
	got, err := os.ReadFile(l.mount + "/copy")
	l.must(err)
	if string(got) != string(l.want) {
		t.Error("the copy of a file in parts is another one")
	}
	// Copying into a sparse upper leaves the sources visible around the copy.
	small, err := os.Create(l.mount + "/small")
	l.must(err)
	defer small.Close()
	_, err = small.WriteString("in the middle")
	l.must(err)
	into, err := os.OpenFile(l.path, os.O_WRONLY, 0)
	l.must(err)
	defer into.Close()
	off := int64(500_001)
	_, err = small.Seek(0, io.SeekStart)
	l.must(err)
	_, err = unix.CopyFileRange(int(small.Fd()), nil, int(into.Fd()), &off, 100, 0)
	l.must(err)
	copy(l.want[500_001:], "in the middle")
	l.check("after a copy into it")
}
