//go:build linux

package sparse_test

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/lower"
	"github.com/snapfs/snapfs/backends/fusecow/layer/sparse"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

const block = 64 << 10 // of which every filesystem can have a hole

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// file creates a file of some blocks: a space is a hole, another byte fills its block.
func file(t *testing.T, blocks string) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	must(t, err)
	t.Cleanup(func() { f.Close() })
	must(t, f.Truncate(int64(len(blocks)*block)))
	for i, b := range []byte(blocks) {
		if b != ' ' {
			_, err := f.WriteAt(bytes.Repeat([]byte{b}, block), int64(i*block))
			must(t, err)
		}
	}
	must(t, f.Sync())
	if !sparse.ReportsHoles(int(f.Fd())) {
		treetest.Skip(t, "a filesystem that reports holes", "SEEK_HOLE finds none")
	}
	return f
}

// content returns an upper above two sources, of which the lowest is in the lower and shown for two blocks.
func content(t *testing.T) (c *sparse.Content, lowest *os.File) {
	t.Helper()
	upper, middle, lowest := file(t, "a    "), file(t, "b b  "), file(t, "cccc")
	st, err := vfs.Lstat(int(lowest.Fd()), "")
	must(t, err)
	sources := []logfile.Source{
		{Layer: 0, Until: 4 * block},
		{Layer: logfile.InLower, Until: 2 * block, Size: st.Size, Mtime: logfile.At(st.MTime.Sec, st.MTime.Nsec)},
	}
	p := sparse.New(logfile.Sparse{Sources: sources})
	return &sparse.Content{Upper: p, Put: func(*lower.FD) {}, Open: func(s *logfile.Source) (*lower.FD, error) {
		switch {
		case s == nil:
			return &lower.FD{Num: int(upper.Fd())}, nil
		case s.Layer == 0:
			return &lower.FD{Num: int(middle.Fd())}, nil
		}
		return &lower.FD{Num: int(lowest.Fd())}, nil
	}}, lowest
}

// shown is what the content must read as: a of the upper, c of the lower, b of the middle, and zeros.
var shown = blocksOf("acb\x00\x00")

func blocksOf(blocks string) (all []byte) {
	for _, b := range []byte(blocks) {
		all = append(all, bytes.Repeat([]byte{b}, block)...)
	}
	return all
}

// TestHolesShowTheSourcesBelow up to where each is shown.
func TestHolesShowTheSourcesBelow(t *testing.T) {
	c, _ := content(t)
	buf := make([]byte, 5*block)
	must(t, c.Read(buf, 0))
	if !bytes.Equal(buf, shown) {
		t.Error("the content differs")
	}
	must(t, c.Read(buf[:100], block-50))
	if !bytes.Equal(buf[:100], shown[block-50:block+50]) {
		t.Error("a range across two levels differs")
	}
	to := file(t, "")
	must(t, c.Copy(int(to.Fd()), 5*block))
	copied, err := os.ReadFile(to.Name())
	must(t, err)
	if !bytes.Equal(copied, shown) {
		t.Errorf("the copy of %d bytes differs", len(copied))
	}
	if next, err := c.NextHole(0, 5*block); next != 3*block || err != nil {
		t.Errorf("the first hole is at %d, %v", next, err)
	}
	if next, err := c.NextData(block, 5*block); next != block || err != nil {
		t.Errorf("data is at %d, %v", next, err)
	}
	if next, err := c.NextData(3*block, 5*block); next != 5*block || err != nil {
		t.Errorf("there is data at %d, %v", next, err)
	}
}

// TestChangedSourceIsStale if it is in the lower.
func TestChangedSourceIsStale(t *testing.T) {
	c, lowest := content(t)
	must(t, lowest.Truncate(0))
	if err := c.Read(make([]byte, 5*block), 0); !errors.Is(err, unix.ESTALE) {
		t.Errorf("reading it gives %v, want ESTALE", err)
	}
	must(t, c.Read(make([]byte, block), 0)) // the upper's own
}

// TestCutLimitsAllSources, and leaves none at 0.
func TestCutLimitsAllSources(t *testing.T) {
	c, _ := content(t)
	p := c.Cut(block)
	if p.Shown() != block || p.Sources[1].Until != block || c.Shown() != 4*block {
		t.Errorf("the cut upper has %+v", p.Sources)
	}
	if c.Cut(0) != nil {
		t.Error("an upper that is cut to nothing has sources")
	}
	if same := c.Cut(4 * block); same != c.Upper {
		t.Error("cutting nothing changes the upper")
	}
	of, err := p.In(int(file(t, "a").Fd()))
	if err != nil || of.Own.Ino == 0 || of.Shown() != block {
		t.Errorf("the upper in another file is %+v, %v", of, err)
	}
}

// TestCopyFileKeepsHoles of the source.
func TestCopyFileKeepsHoles(t *testing.T) {
	from, to := file(t, "x  y"), file(t, "")
	must(t, sparse.CopyFile(int(to.Fd()), int(from.Fd()), false))
	if data, hole, err := sparse.Extent(int(to.Fd()), block, 4*block); data != 3*block || hole != 4*block || err != nil {
		t.Errorf("the copy has data from %d to %d, %v", data, hole, err)
	}
}
