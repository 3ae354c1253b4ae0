//go:build linux

package layer_test

import (
	"errors"
	"os"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/backends/fusecow/layer/quota"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// TestQuotaCountersSurviveAFullBtrfs: writing to a mapped page without space for it would kill the process.
func TestQuotaCountersSurviveAFullBtrfs(t *testing.T) {
	s := &small{T: t}
	dir := treetest.Small(t, "btrfs", 300<<20)
	s.filler = dir + "/filler"
	q, err := quota.Open(dir + "/quota")
	s.must(err)
	defer q.Close()
	for i := range int64(20) {
		q.SetLimit(quota.Usage{Bytes: (i + 1) << 30})
		free(t, dir) // also syncs
		s.fill()
	}
}

// TestWrittenDataSurvivesAKill, synced or not, in a file of the lower.
func TestWrittenDataSurvivesAKill(t *testing.T) {
	b := newBench(t)
	b.write(b.lower+"/file", "below")
	b.up()
	f, err := os.OpenFile(b.mount+"/file", os.O_WRONLY|os.O_APPEND, 0)
	b.must(err)
	_, err = f.WriteString(" and above")
	b.must(errors.Join(err, f.Close()))
	b.again(true)
	b.has(b.mount+"/file", "below and above")
}

// TestTruncatedSourceIsNoHole: when the source of a sparse upper was changed in the lower, its part does not
// read as zeros.
func TestTruncatedSourceIsNoHole(t *testing.T) {
	l := newLarge(t)
	l.put("x", len(l.want))
	l.must(os.Truncate(l.lower+"/large", 0))
	f, err := os.Open(l.path)
	l.must(err)
	for _, whence := range []int{unix.SEEK_DATA, unix.SEEK_HOLE} {
		if at, err := unix.Seek(int(f.Fd()), 0, whence); !errors.Is(err, unix.ESTALE) {
			t.Errorf("lseek with %d answers %d, %v", whence, at, err)
		}
	}
	l.must(f.Close())
	l.down()
	fs, err := layer.Open(layer.Options{Lower: l.lower, Layers: l.layers, CopyUpLimit: 1})
	l.must(err)
	l.must(fs.Detach(t.Context(), map[string]bool{"large": true}))
	e, err := fs.Lookup(layer.RootID, "large")
	l.must(err)
	if n, err := fs.Read(e.ID, make([]byte, 100), 0); !errors.Is(err, unix.ESTALE) {
		t.Errorf("brought up, it has %d bytes, %v", n, err)
	}
	l.must(fs.Close())
}
