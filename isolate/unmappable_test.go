package isolate

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/treetest"
)

// A filesystem that cannot show its files with other owners is no tree of root's
// sandbox, and that is said; it may be read there, with owners that look like nobody.
func TestWhatCannotBeIDMappedIsRefusedWithAReason(t *testing.T) {
	treetest.NeedRoot(t)
	for _, fs := range []string{"ramfs", "overlay"} {
		dir := treetest.Dir(t)
		leakless(t)
		options := ""
		if fs == "overlay" {
			options = "lowerdir=/usr:/etc"
		}
		if err := unix.Mount(fs, dir, fs, 0, options); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
		copied := overlay(t, dir)
		copied.Nested = false
		for _, m := range []Mount{{Target: "/mnt", Source: dir}, {Target: "/mnt", Overlay: copied}} {
			spec := rootSpec(t)
			spec.Mounts = append(spec.Mounts, m)
			_, _, err := Start(t.Context(), spec, nil)
			var e *Error
			if !errors.As(err, &e) || !errors.Is(err, ErrNotSupported) || e.Path != dir || len(e.Hints) == 0 || !strings.Contains(e.Error(), fs+", cannot show files with other owners") {
				t.Errorf("%s: %v", m, err)
			}
		}
		spec := rootSpec(t)
		spec.Mounts = append(spec.Mounts, Mount{Target: "/mnt", Source: dir, ReadOnly: true})
		if got := sh(t, open(t, spec), "stat -c %u /mnt; touch /mnt/x 2>/dev/null || echo kept"); got != "65534\nkept" {
			t.Errorf("%s: %q", fs, got)
		}
	}
}
