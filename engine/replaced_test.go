//go:build linux

package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
)

// TestAnEditInAReplacedDirectoryIsNotLost: a sandbox replaced a directory with one of the same name. The
// user then edited files in the real one, and the sandbox started again, before or after that.
func TestAnEditInAReplacedDirectoryIsNotLost(t *testing.T) {
	everywhere(t, func(t *testing.T, b *bench) {
		for _, restart := range []bool{false, true} {
			if err := os.MkdirAll(filepath.Join(b.workspace, "d/sub"), 0o755); err != nil {
				t.Fatal(err)
			}
			b.write("d/x", "base")
			b.write("d/sub/z", "base")
			tick()
			b.new("c")
			b.in("c", "rm -r d && mkdir -p d/sub && echo new > d/y")
			again := func() {
				if err := b.Supervise.Stop(t.Context(), "c"); err != nil {
					t.Fatal(err)
				}
				tick()
				b.in("c", "true")
			}
			again()
			b.write("d/x", "edited")
			b.write("d/sub/z", "edited")
			tick()
			if restart {
				again()
			}
			if _, err := b.Reconcile.Promote(t.Context(), "c", reconcile.PromoteOptions{}); !errors.Is(err, errs.ErrConflict) {
				t.Errorf("restart %t: the promotion: %v, want a conflict", restart, err)
			}
			if got := b.read("d/x") + b.read("d/sub/z"); got != "editededited" {
				t.Errorf("restart %t: the real files have %q", restart, got)
			}
			if err := b.Remove(t.Context(), "c"); err != nil {
				t.Fatal(err)
			}
		}
	})
}
