//go:build linux

package quota_test

import (
	"errors"
	"os"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/quota"
	"golang.org/x/sys/unix"
)

func open(t *testing.T, path string) *quota.Quota {
	t.Helper()
	q, err := quota.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Close)
	return q
}

// TestQuotaIsSharedByAllWhoOpenIt: limit and usage are in the file.
func TestQuotaIsSharedByAllWhoOpenIt(t *testing.T) {
	path := t.TempDir() + "/quota"
	q, other := open(t, path), open(t, path)
	q.SetLimit(quota.Usage{Bytes: 100, Inodes: 10})
	if got := other.Limit(); got != (quota.Usage{Bytes: 100, Inodes: 10}) {
		t.Errorf("the limit is %v", got)
	}
	for _, layer := range []string{"/a/one", "/a/two"} {
		if err := q.SetUsage(layer, quota.Usage{Bytes: 30, Inodes: 3}); err != nil {
			t.Fatal(err)
		}
	}
	slot, err := other.Slot("/elsewhere/one") // by its name
	if err != nil || slot.Usage() != (quota.Usage{Bytes: 30, Inodes: 3}) {
		t.Errorf("the slot has %v, %v", slot.Usage(), err)
	}
	slot.Bytes.Add(5)
	if got, want := q.Free(), (quota.Usage{Bytes: 35, Inodes: 4}); got != want {
		t.Errorf("%v is free, want %v", got, want)
	}
	st := unix.Statfs_t{Frsize: 5, Bfree: 1000, Bavail: 1000, Ffree: 1000}
	if q.ClampStatfs(&st); st.Blocks != 20 || st.Bavail != 7 || st.Files != 10 || st.Ffree != 4 {
		t.Errorf("statfs has %+v", st)
	}
	q.Retain([]string{"/a/two"})
	if got := other.Used(); got != (quota.Usage{Bytes: 30, Inodes: 3}) {
		t.Errorf("%v is used by the retained layer", got)
	}
	q.SetLimit(quota.Usage{})
	if free := q.Free(); free.Bytes < 1<<60 || free.Bytes+free.Bytes < 0 {
		t.Errorf("without a limit %v is free", free)
	}
}

// TestOpenRefusesAnotherFile and leaves it as it is.
func TestOpenRefusesAnotherFile(t *testing.T) {
	path := t.TempDir() + "/quota"
	if err := os.WriteFile(path, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := quota.Open(path); !errors.Is(err, quota.ErrDamaged) {
		t.Errorf("opening it gives %v, want %v", err, quota.ErrDamaged)
	}
}

// TestOfLayerCountsTheLastStateOfEachInode and the log itself.
func TestOfLayerCountsTheLastStateOfEachInode(t *testing.T) {
	path := t.TempDir() + "/layer"
	d, err := logfile.Open(path, true)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	block, err := quota.BlockSize(d.FD)
	if err != nil {
		t.Fatal(err)
	}
	var w logfile.Writer
	for _, n := range []logfile.Inode{
		{ID: 1, Blocks: 8, Layer: 2}, {ID: 1, Blocks: 16, Layer: 2}, {ID: 2, Blocks: 8, Layer: 2}, {ID: 3, Blocks: 8, Layer: logfile.InLower},
	} {
		w.Inode(&n)
	}
	w.Gone(2)
	if err := d.Append(w); err != nil {
		t.Fatal(err)
	}
	if got, err := quota.OfLayer(path, 2); err != nil || got != (quota.Usage{Bytes: 16*512 + block, Inodes: 2}) {
		t.Errorf("the layer has %v, %v", got, err)
	}
}
