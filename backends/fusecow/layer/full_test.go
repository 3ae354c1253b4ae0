//go:build linux

package layer_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// A small is a layer, without a mount, on a filesystem that can be filled.
type small struct {
	*testing.T
	*layer.FS
	o      layer.Options
	filler string
}

func newSmall(t *testing.T, fs string) *small {
	t.Helper()
	dir := treetest.Small(t, fs, 32<<20)
	s := &small{T: t, o: layer.Options{Lower: t.TempDir(), Layers: []string{dir + "/layer"}}, filler: dir + "/filler"}
	s.open()
	return s
}

func (s *small) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *small) open() {
	s.Helper()
	var err error
	s.FS, err = layer.Open(s.o)
	s.must(err)
}

func (s *small) make(dir uint64, name string, mode uint32) uint64 {
	s.Helper()
	e, err := s.Make(dir, layer.New{Name: name, Mode: mode})
	s.must(err)
	return e.ID
}

// drop removes a file that is not open.
func (s *small) drop(dir uint64, name string, id uint64) {
	s.Helper()
	s.must(s.Remove(dir, name, false))
	s.Forget(id, 1)
}

func (s *small) has(dir uint64, name string) bool {
	s.Helper()
	e, err := s.Lookup(dir, name)
	s.must(err)
	return e.ID != 0
}

// fill uses up the disk.
func (s *small) fill() {
	s.Helper()
	f, err := os.OpenFile(s.filler, os.O_WRONLY|os.O_CREATE, 0o600)
	s.must(err)
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err = f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		s.Fatal(err)
	}
}

// TestWritebackReportsFullDisk: changes of a failed commit reach the log later.
func TestWritebackReportsFullDisk(t *testing.T) {
	s := newSmall(t, "tmpfs")
	d, e := s.make(layer.RootID, "D", unix.S_IFDIR|0o755), s.make(layer.RootID, "E", unix.S_IFDIR|0o755)
	c := s.make(d, "c", unix.S_IFREG|0o644)
	s.must(s.Commit(true))
	s.fill()
	s.must(s.Rename(d, "c", e, "c", 0))
	s.must(s.Remove(layer.RootID, "D", true))
	for i := range 300 {
		s.make(layer.RootID, fmt.Sprint("more", i), unix.S_IFREG|0o644)
	}
	if err := s.Commit(true); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("on a full disk the log is written: %v", err)
	}
	s.must(os.Remove(s.filler))
	s.must(s.Commit(true))
	s.drop(e, "c", c)
	s.Forget(d, 1)
	s.must(s.Commit(true))
	s.must(s.Close())
	for _, when := range []string{"as it is", "rewritten"} {
		if found, err := layer.Check(s.o, false); err != nil || len(found) > 0 {
			t.Errorf("the log, %s, is damaged: %v, %v", when, found, err)
		}
		s.open()
		if s.has(layer.RootID, "D") || !s.has(layer.RootID, "E") || !s.has(layer.RootID, "more299") {
			t.Errorf("the log, %s, tells of another tree", when)
		}
		s.must(s.Close())
		s.must(layer.Rewrite(s.o))
	}
}

// TestFullDiskCanBeEmptiedFromInside even if the records of the removals need more space than is left.
func TestFullDiskCanBeEmptiedFromInside(t *testing.T) {
	s := newSmall(t, "tmpfs")
	const files = 2000
	var all [files]uint64
	for i := range all {
		all[i] = s.make(layer.RootID, fmt.Sprint(i), unix.S_IFREG|0o644)
		_, err := s.Write(all[i], make([]byte, 10000), 0, layer.LoseNothing)
		s.must(err)
	}
	s.must(s.Commit(true))
	s.fill()
	for i, id := range all {
		s.drop(layer.RootID, fmt.Sprint(i), id)
	}
	s.must(s.Commit(true))
	var st unix.Statfs_t
	s.must(unix.Statfs(s.o.Layers[0], &st))
	if free := int64(st.Bavail) * st.Bsize; free < files*10000 {
		t.Errorf("%d bytes are free", free)
	}
	s.must(s.Close())
	s.open()
	if s.has(layer.RootID, "0") || s.has(layer.RootID, fmt.Sprint(files-1)) {
		t.Error("what was removed is there again")
	}
	s.must(s.Close())
}

// TestSpaceOfRemovedFilesIsReusable on a disk without space for both files.
func TestSpaceOfRemovedFilesIsReusable(t *testing.T) {
	for _, fs := range []string{"tmpfs", "ext4"} {
		s := newSmall(t, fs)
		for i := range 5 {
			id := s.make(layer.RootID, "large", unix.S_IFREG|0o644)
			for at := int64(0); at < 18<<20; {
				n, err := s.Write(id, make([]byte, 1<<20), at, layer.LoseNothing) // it may write less
				if err != nil {
					t.Fatalf("%s: file %d, after %d bytes: %v", fs, i, at, err)
				}
				at += int64(n)
			}
			s.must(s.Commit(false)) // as once a second
			s.drop(layer.RootID, "large", id)
		}
		s.must(s.Close())
	}
}

// TestFailedFallocateChangesNothing: the space is free again, and the log has the present size.
func TestFailedFallocateChangesNothing(t *testing.T) {
	s := newSmall(t, "ext4")
	id := s.make(layer.RootID, "large", unix.S_IFREG|0o644)
	_, err := s.Write(id, []byte("text"), 0, layer.LoseNothing)
	s.must(err)
	if err := s.Fallocate(id, 0, 0, 64<<20, layer.LoseNothing); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("64 MiB of 32 give %v", err)
	}
	if a, err := s.Attr(id); err != nil || a.Size != 4 || a.Blocks > 64 {
		t.Errorf("it has %d bytes in %d blocks, %v", a.Size, a.Blocks, err)
	}
	s.must(s.Close())
	if found, err := layer.Check(s.o, false); err != nil || len(found) > 0 {
		t.Errorf("the layer: %v, %v", found, err)
	}
}

// TestContentOutlivesItsRecordOnDisk: after a power cut a synced file, which another synced file has replaced,
// is there as the one or the other.
func TestContentOutlivesItsRecordOnDisk(t *testing.T) {
	disk := treetest.NewDisk(t, "ext4")
	s := &small{T: t, o: layer.Options{Lower: t.TempDir(), Layers: []string{disk.Dir + "/layer"}}}
	s.open()
	synced := func(name, text string) uint64 {
		id := s.make(layer.RootID, name, unix.S_IFREG|0o644)
		_, err := s.Write(id, []byte(text), 0, layer.LoseNothing)
		s.must(errors.Join(err, s.Fsync(id, false)))
		return id
	}
	old := synced("conf", "old")
	synced("conf.new", "new")
	s.must(s.Rename(layer.RootID, "conf.new", layer.RootID, "conf", 0))
	s.Forget(old, 1)
	s.must(s.Commit(false)) // as once a second
	// The journal with the removal of the content is written, although not by fsync.
	other, err := os.Create(disk.Dir + "/other")
	s.must(err)
	s.must(errors.Join(other.Sync(), other.Close()))
	restore := disk.CutPower(t)
	f, err := layer.Open(s.o)
	s.must(err)
	e, err := f.Lookup(layer.RootID, "conf")
	s.must(err)
	buf := make([]byte, 10)
	n, err := f.Read(e.ID, buf, 0)
	if text := string(buf[:n]); err != nil || text != "old" && text != "new" {
		t.Errorf("after a power cut it holds %q, %v", text, err)
	}
	s.must(f.Close())
	restore()
	s.must(s.Close())
}
