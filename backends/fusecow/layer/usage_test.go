//go:build linux

package layer_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/backends/fusecow/layer/quota"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// counted checks the usage of each layer against its directory. ext4 allocates a block for the map of a
// fragmented file at writeback, and frees it at a later one if the extents then fit into the inode
// (ext4_ext_try_to_merge_up). Either may come after the file was charged.
func (b *bench) counted() {
	b.Helper()
	for i, path := range b.layers {
		got, err := quota.OfLayer(path, b.index(i))
		b.must(err)
		var want, maps int64
		b.must(filepath.WalkDir(path, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() && e.Name() == "base" {
				return filepath.SkipDir // not a part of the tree
			}
			if err == nil && e.Type().IsRegular() {
				var st vfs.Stat
				st, err = vfs.Lstat(unix.AT_FDCWD, path)
				if whole := (st.Size + 4095) / 4096 * 4096; st.Blocks*512 < whole {
					want, maps = want+st.Blocks*512, maps+4096
				} else {
					want += whole
				}
			}
			return err
		}))
		if got.Bytes > want+maps || got.Bytes < want-maps {
			b.Errorf("%s holds %d bytes, and says %d", path, want, got.Bytes)
		}
	}
}

// hold charges a filesystem to the quota at path.
func hold(f *layer.FS, path string) error {
	q, err := quota.Open(path)
	if err == nil {
		err = f.SetQuota(q, f.Paths())
	}
	return err
}

// quota charges the mounted layers to a new quota.
func (b *bench) quota(most quota.Usage) *quota.Quota {
	b.Helper()
	path := filepath.Dir(b.mount) + "/quota"
	q, err := quota.Open(path)
	b.must(err)
	b.Cleanup(q.Close)
	q.SetLimit(most)
	b.command("hold " + path)
	return q
}

// fill appends to a file until that fails, and returns the bytes written.
func (b *bench) fill(name string, step int) (sum int64) {
	b.Helper()
	f, err := os.OpenFile(b.mount+"/"+name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if errors.Is(err, unix.EDQUOT) {
		return 0
	}
	b.must(err)
	defer f.Close()
	for {
		n, err := f.Write(make([]byte, step))
		if sum += int64(n); errors.Is(err, unix.EDQUOT) {
			return sum
		}
		b.must(err)
		if sum > 64<<20 {
			b.Fatal("nothing stops it")
		}
	}
}

// TestQuotaIsExact to the block, whatever the size of the writes. Overwriting, holes and deletions cost
// nothing.
func TestQuotaIsExact(t *testing.T) {
	b := newBench(t)
	b.write(b.lower+"/base", string(make([]byte, 1<<20)))
	b.up()
	const most = 8 << 20
	q := b.quota(quota.Usage{Bytes: most})
	for _, step := range []int{512, 100 << 10, 3 << 20} {
		b.fill("file", step)
		if used := q.Used().Bytes; used > most || used < most-4096 {
			t.Errorf("written %d at a time it ends at %d of %d", step, used, most)
		}
		var st unix.Statfs_t
		if err := unix.Statfs(b.mount, &st); err != nil || st.Blocks*uint64(st.Frsize) != most || st.Bavail > 1 {
			t.Errorf("statfs tells of %d blocks, %d free: %v", st.Blocks, st.Bavail, err)
		}
		f, err := os.OpenFile(b.mount+"/file", os.O_RDWR, 0)
		b.must(err)
		if _, err := f.WriteAt([]byte("over"), 1<<20); err != nil {
			t.Error("overwriting when all is full:", err)
		}
		if err := f.Truncate(1 << 40); err != nil {
			t.Error("a hole when all is full:", err)
		}
		if _, err := f.WriteAt([]byte("in it"), 1<<39); !errors.Is(err, unix.EDQUOT) {
			t.Errorf("writing into a hole when all is full gives %v", err)
		}
		if _, err := f.WriteAt([]byte("over"), 1<<20); err != nil {
			t.Error("overwriting in a file with holes when all is full:", err)
		}
		b.must(f.Close())
		if err := os.WriteFile(b.mount+"/base", []byte("x"), 0o644); err != nil && !errors.Is(err, unix.EDQUOT) {
			t.Error("cutting a file of the tree below:", err)
		}
		b.must(os.Remove(b.mount + "/file"))
	}
	b.sync() // otherwise it may be back
	b.again(true)
	top, err := quota.OfLayer(b.layers[0], 0)
	b.must(err)
	if top.Bytes > 64<<10 {
		t.Errorf("when all was removed, %d bytes are held", top.Bytes)
	}
	b.down()
	b.counted()
}

// TestQuotaCountsPreallocation: space from fallocate(2) can be written when the quota is full.
func TestQuotaCountsPreallocation(t *testing.T) {
	b := newBench(t)
	b.up()
	b.quota(quota.Usage{Bytes: 4 << 20})
	f, err := os.Create(b.mount + "/ahead")
	b.must(err)
	defer func() { b.must(f.Close()); b.down(); b.counted() }()
	b.must(unix.Fallocate(int(f.Fd()), 0, 0, 1<<20))
	b.fill("rest", 64<<10)
	for at := int64(0); at < 1<<20; at += 64 << 10 {
		if _, err := f.WriteAt(make([]byte, 64<<10), at); err != nil {
			t.Fatalf("at %d: %v", at, err)
		}
	}
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 1<<20, 1<<20); !errors.Is(err, unix.EDQUOT) {
		t.Errorf("to allocate more gives %v", err)
	}
}

// TestQuotaRefusesMappedPages: the kernel gets one error for all pages of a writeback.
func TestQuotaRefusesMappedPages(t *testing.T) {
	b := newBench(t)
	b.up()
	b.quota(quota.Usage{Bytes: 1 << 20})
	f, err := os.Create(b.mount + "/mapped")
	b.must(err)
	defer f.Close()
	const size = 256 << 10
	b.must(f.Truncate(size))
	b.fill("rest", 64<<10)
	rest := b.mount + "/rest"
	st, err := os.Stat(rest)
	b.must(err)
	b.must(os.Truncate(rest, st.Size()-size/4))
	pages, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	b.must(err)
	for i := range pages {
		pages[i] = 'x'
	}
	if err := errors.Join(unix.Msync(pages, unix.MS_SYNC), f.Sync()); err == nil {
		t.Error("what found no room was taken for written")
	}
	b.must(unix.Munmap(pages))
}

// TestQuotaCountsSpaceBeyondTheEnd of a file until that is truncated.
func TestQuotaCountsSpaceBeyondTheEnd(t *testing.T) {
	b := newBench(t)
	b.up()
	q := b.quota(quota.Usage{Bytes: 16 << 20})
	f, err := os.Create(b.mount + "/ahead")
	b.must(err)
	defer f.Close()
	b.must(unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 4<<20))
	b.must(f.Truncate(100))
	if used := q.Used().Bytes; used < 4<<20 {
		t.Errorf("%d bytes are counted of %d that were allocated", used, 4<<20)
	}
}

// TestQuotaCountsInodes: new ones, and lower ones that were changed. Names can be removed when it is full.
func TestQuotaCountsInodes(t *testing.T) {
	b := newBench(t)
	for i := range 3 {
		b.write(fmt.Sprintf("%s/%d", b.lower, i), "below")
	}
	b.up()
	q := b.quota(quota.Usage{Inodes: 4})
	b.must(os.Chmod(b.mount+"/0", 0o600))
	b.must(os.Mkdir(b.mount+"/dir", 0o755)) // also changes the root
	b.must(os.Symlink("there", b.mount+"/link"))
	for what, err := range map[string]error{
		"a file":                   os.WriteFile(b.mount+"/more", nil, 0o644),
		"changing one of the base": os.Chmod(b.mount+"/1", 0o600),
		"writing to one":           os.WriteFile(b.mount+"/1", nil, 0o600),
	} {
		if !errors.Is(err, unix.EDQUOT) {
			t.Errorf("%s beyond the limit gives %v", what, err)
		}
	}
	b.must(os.Remove(b.mount + "/2"))
	b.must(os.Remove(b.mount + "/link"))
	if used := q.Used().Inodes; used > 4 {
		t.Errorf("%d nodes are counted of 4", used)
	}
	b.again(false)
	b.down()
	if u, err := quota.OfLayer(b.layers[0], 0); err != nil || u.Inodes != 3 {
		t.Errorf("the log tells of %d nodes, %v; want the root, a file and a directory", u.Inodes, err)
	}
}

// TestInodeQuotaCountsNoBytes, nor removed content.
func TestInodeQuotaCountsNoBytes(t *testing.T) {
	b := newBench(t)
	b.up()
	b.quota(quota.Usage{Inodes: 3})
	for range 3 {
		b.write(b.mount+"/large", string(make([]byte, 1<<20)))
		b.must(treetest.Open(b, b.mount+"/large").Sync()) // the log records it
		b.must(os.Remove(b.mount + "/large"))
	}
}
