//go:build linux

package layer_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/internal/treetest"
)

// TestCleanInodeTakesLittleMemory: a million looked-up inodes take less than 300 MB of the server: 240 bytes
// each on the heap, plus a third as garbage.
func TestCleanInodeTakesLittleMemory(t *testing.T) {
	treetest.OncePerRun(t)
	dir := treetest.Dir(t)
	lower := dir + "/lower"
	if err := os.Mkdir(lower, 0o755); err != nil {
		t.Fatal(err)
	}
	const files, most = 5_000, 240
	name := func(i int) string { return fmt.Sprintf("file-with-a-name-%d", i) }
	for i := range files {
		if err := os.WriteFile(lower+"/"+name(i), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := layer.Open(layer.Options{Lower: lower, Layers: []string{dir + "/layer"}})
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	for i := range files {
		if e, err := f.Lookup(layer.RootID, name(i)); err != nil || e.ID == 0 {
			t.Fatalf("%s: %d, %v", name(i), e.ID, err)
		}
	}
	if each := (heap() - before) / files; each > most || each < 50 {
		t.Errorf("%d bytes a node, at most %d", each, most)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// heap returns the bytes in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
