package engine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/snapfs/snapfs/isolate"
)

// TestWhatIsShownAsItIsIsTried, but for copies, trees in a frame, and what to open may
// do something.
func TestWhatIsShownAsItIsIsTried(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(in("file"), nil, 0o600), os.Mkdir(in("tree"), 0o700), syscall.Mkfifo(in("pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	h := &host{mounts: []isolate.Mount{
		{Target: dir, Skeleton: dir},
		{Target: in("tree"), Overlay: &isolate.Overlay{Lower: []string{in("tree")}}},
		{Target: "/copy", Source: in("tree")},
		{Target: in("pipe"), Source: in("pipe"), ReadOnly: true},
		{Target: in("gone"), Source: in("gone"), ReadOnly: true},
	}}
	paths := subjects()["read-only"].paths
	if got := paths(h); !slices.Equal(got, []string{in("file")}) {
		t.Errorf("%q", got)
	}
	h.mounts = append(h.mounts, isolate.Mount{Target: in("tree"), Source: in("tree"), ReadOnly: true})
	if got := paths(h); !slices.Equal(got, []string{in("file"), in("tree")}) {
		t.Errorf("%q", got)
	}
}
