package heldspace_test

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/heldspace"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
)

const mib = 1 << 20

// write writes a file of n MiB, whose bytes are all b, and syncs it.
func write(t *testing.T, path string, n int, b byte) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	data := make([]byte, n*mib)
	for i := range data {
		data[i] = b
	}
	_, err = f.Write(data)
	must(t, err)
	must(t, f.Sync())
}

// clone makes the file to, which shares all blocks of the file from.
func clone(t *testing.T, from, to string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(to), 0o755))
	src, err := os.Open(from)
	must(t, err)
	defer src.Close()
	dst, err := os.Create(to)
	must(t, err)
	defer dst.Close()
	must(t, vfs.CloneFile(dst, src))
	must(t, dst.Sync())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// measure returns the sizes in MiB by last holder, when each of trees, in the directory dir, is a holder, and the tree
// other has the holder Other.
func measure(t *testing.T, dir string, trees ...string) map[int]int {
	t.Helper()
	must(t, vfs.SyncFSOf(dir))
	m := &heldspace.Meter{}
	for i, tree := range trees {
		must(t, m.AddTree(t.Context(), filepath.Join(dir, tree), i, nil))
	}
	if m.NeedsOthers() {
		must(t, m.AddTree(t.Context(), filepath.Join(dir, "other"), heldspace.Other, nil))
	}
	bytes, sizes := map[int]int64{}, map[int]int{}
	m.Each(func(size int64, last int) { bytes[last] += size })
	for last, size := range bytes {
		if n := int((size + mib/2) / mib); n > 0 { // directories take less
			sizes[last] = n
		}
	}
	return sizes
}

func want(t *testing.T, what string, got, want map[int]int) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: the MiB by last holder are %v, want %v", what, got, want)
	}
}

// wantSoon does as want, and waits for the kernel to free the blocks of removed files, which xfs does in the background.
func wantSoon(t *testing.T, what string, sizes map[int]int, measure func() map[int]int) {
	t.Helper()
	got := measure()
	for end := time.Now().Add(time.Minute); !maps.Equal(got, sizes) && time.Now().Before(end); got = measure() {
		time.Sleep(10 * time.Millisecond)
	}
	want(t, what, got, sizes)
}

func TestHardLinksCountOnce(t *testing.T) {
	dir := treetest.Dir(t)
	write(t, dir+"/a/own", 1, 1)
	write(t, dir+"/a/both", 2, 2)
	write(t, dir+"/a/kept", 4, 3)
	must(t, os.Mkdir(dir+"/b", 0o755))
	must(t, os.Mkdir(dir+"/other", 0o755))
	must(t, os.Link(dir+"/a/both", dir+"/a/again"))
	must(t, os.Link(dir+"/a/both", dir+"/b/both"))
	must(t, os.Link(dir+"/a/kept", dir+"/other/kept"))
	want(t, "a, b", measure(t, dir, "a", "b"), map[int]int{0: 1, 1: 2})
	want(t, "b, a", measure(t, dir, "b", "a"), map[int]int{1: 3})
	want(t, "b alone", measure(t, dir, "b"), map[int]int{0: 2})
	want(t, "a tree that does not exist", measure(t, dir, "none"), map[int]int{})
}

func TestReflinksCountOnce(t *testing.T) {
	for _, fs := range []string{"btrfs", "xfs"} {
		t.Run(fs, func(t *testing.T) {
			dir := treetest.Small(t, fs, 320<<20)
			write(t, dir+"/a/own", 1, 1)
			write(t, dir+"/a/both", 4, 2)
			clone(t, dir+"/a/both", dir+"/b/both")
			write(t, dir+"/a/kept", 2, 3)
			clone(t, dir+"/a/kept", dir+"/other/kept")
			write(t, dir+"/a/unknown", 2, 4)
			clone(t, dir+"/a/unknown", dir+"/elsewhere")
			want(t, "all files are known, or shared by one unknown", measure(t, dir, "a", "b"), map[int]int{0: 1, 1: 4})

			f, err := os.OpenFile(dir+"/b/both", os.O_WRONLY, 0)
			must(t, err)
			defer f.Close()
			_, err = f.WriteAt(make([]byte, mib), mib)
			must(t, err)
			must(t, f.Sync())
			if fs == "xfs" { // btrfs keeps the whole extent of which a file has a part
				want(t, "a part was written to", measure(t, dir, "a", "b"), map[int]int{0: 2, 1: 4})
			}
			must(t, os.RemoveAll(dir+"/a/both"))
			wantSoon(t, "the other name is gone", map[int]int{0: 4}, func() map[int]int { return measure(t, dir, "b") })
			must(t, os.Remove(dir+"/elsewhere"))
			wantSoon(t, "the unknown file is gone", map[int]int{0: 3}, func() map[int]int { return measure(t, dir, "a") })
		})
	}
}
