package vfs_test

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// TestSyncDataLeavesNoUnwrittenBlocks writes new files, and looks at the state of their blocks after SyncData. A block
// that the filesystem still has as unwritten would read as zeros after a power loss, under the file's name.
func TestSyncDataLeavesNoUnwrittenBlocks(t *testing.T) {
	dir := treetest.Dir(t)
	for range 20 {
		f, err := os.Create(filepath.Join(dir, "new"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(make([]byte, 3000)); err != nil {
			t.Fatal(err)
		}
		if err := vfs.SyncData(f); err != nil {
			t.Fatal(err)
		}
		flags, ok := firstExtent(f)
		if !ok {
			treetest.Skip(t, "a filesystem that lists the blocks of a file", "FIEMAP lists none")
		}
		const delayed, unwritten = 0x4, 0x800 // FIEMAP_EXTENT_DELALLOC, FIEMAP_EXTENT_UNWRITTEN
		if flags&(delayed|unwritten) != 0 {
			t.Fatalf("the flags of the first extent are %#x: its data is not on the disk", flags)
		}
		if err := os.Remove(f.Name()); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}

// firstExtent returns the flags of the first extent of f, or false if the filesystem does not tell.
func firstExtent(f *os.File) (flags uint32, ok bool) {
	const fsIocFiemap = 0xc020660b
	var m struct { // struct fiemap with one struct fiemap_extent, see linux/fiemap.h
		start, length           uint64
		flags, mapped, count, _ uint32
		logical, physical, size uint64
		_                       [2]uint64
		extentFlags             uint32
		_                       [3]uint32
	}
	m.length, m.count = 1<<63, 1
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsIocFiemap, uintptr(unsafe.Pointer(&m)))
	return m.extentFlags, errno == 0 && m.mapped == 1
}
