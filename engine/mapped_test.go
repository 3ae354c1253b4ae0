package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// A program writes to a page that it had mapped and changed before the sandbox was made. The kernel gives the file no
// new change time.
func TestWhatAProgramWritesThroughMemoryIsNotLost(t *testing.T) {
	treetest.NeedRoot(t)
	for _, backend := range []string{"overlay", "fusecow"} {
		t.Run(backend, func(t *testing.T) {
			if backend == "fusecow" {
				treetest.NeedDevice(t, "/dev/fuse")
			}
			b := newBench(t)
			b.write("f", strings.Repeat("base", 100))
			f, err := os.OpenFile(filepath.Join(b.workspace, "f"), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			page, err := unix.Mmap(int(f.Fd()), 0, 400, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Munmap(page)
			copy(page, "dirt")
			tick()
			b.makes("s", backend)
			b.in("s", "echo mine > f")
			copy(page, "user")
			_, err = b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{})
			if !errors.Is(err, errs.ErrConflict) {
				t.Errorf("got %v", err)
			}
			if text := b.read("f"); !strings.HasPrefix(text, "user") {
				t.Errorf("the real file holds %q", text)
			}
		})
	}
}
