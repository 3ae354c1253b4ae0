package diff_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/engine/diff"
)

func (w twins) file(path string, size int64, at map[int64][]byte) *os.File {
	w.t.Helper()
	f, err := os.Create(path)
	w.do(err)
	w.t.Cleanup(func() { f.Close() })
	for offset, data := range at {
		_, err := f.WriteAt(data, offset)
		w.do(err)
	}
	w.do(f.Truncate(size))
	return f
}

func (w twins) extents(old, new *os.File) (list []diff.Extent) {
	w.t.Helper()
	w.do(diff.Extents(context.Background(), old, new, func(e diff.Extent) error { list = append(list, e); return nil }))
	return list
}

func TestExtentsOfHugeSparseFilesReadNoHole(t *testing.T) {
	w := makeTwins(t)
	const size = 4 << 40 // reading it would take an hour
	x := []byte("x")
	old := w.file(filepath.Join(w.old, "f"), size, map[int64][]byte{0: x, size / 2: x, size - 1: x})
	new := w.file(filepath.Join(w.new, "f"), size, map[int64][]byte{0: x, size / 4: make([]byte, 1<<20), size / 2: []byte("y"), size - 1: x})
	got := w.extents(old, new)
	if len(got) != 1 || got[0] != (diff.Extent{Offset: size / 2, Length: 64 << 10}) {
		t.Errorf("got %v", got)
	}
	if got := w.extents(nil, new); len(got) != 3 || got[2] != (diff.Extent{Offset: size - 64<<10, Length: 64 << 10}) {
		t.Errorf("of nothing: %v", got)
	}
	if got := w.extents(new, nil); got != nil {
		t.Errorf("to nothing: %v", got)
	}
	stop := errors.New("enough")
	if err := diff.Extents(context.Background(), old, new, func(diff.Extent) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("stopped: %v", err)
	}
}

// The old content, cut to the new length and overwritten with the extents, is the new one.
func TestExtentsTurnTheOldContentIntoTheNew(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	some := func() (int64, map[int64][]byte) {
		size := r.Int64N(3 << 20)
		at := map[int64][]byte{}
		for range r.IntN(6) {
			if size > 0 {
				offset := r.Int64N(size)
				data := make([]byte, min(r.Int64N(300<<10), size-offset))
				if r.IntN(4) > 0 {
					for i := range data {
						data[i] = byte(r.IntN(3))
					}
				}
				at[offset] = data
			}
		}
		return size, at
	}
	extents := 0
	for range 200 {
		w := makeTwins(t)
		size, at := some()
		old := w.file(filepath.Join(w.old, "f"), size, at)
		var new *os.File
		if r.IntN(2) == 0 { // an edit of the same, or another file
			size = r.Int64N(3 << 20)
			new = w.file(filepath.Join(w.new, "f"), size, at)
			w.do(new.Truncate(size))
		} else {
			size, at = some()
			new = w.file(filepath.Join(w.new, "f"), size, at)
		}
		want, err := os.ReadFile(new.Name())
		w.do(err)
		got, err := os.ReadFile(old.Name())
		w.do(err)
		got = append(got, make([]byte, max(0, len(want)-len(got)))...)[:len(want)]
		for _, e := range w.extents(old, new) {
			copy(got[e.Offset:e.Offset+e.Length], want[e.Offset:])
			extents++
		}
		if string(got) != string(want) {
			t.Fatal("not the new content")
		}
		w.do(os.RemoveAll(w.old), os.RemoveAll(w.new))
	}
	if extents < 100 {
		t.Errorf("only %d extents", extents)
	}
}
