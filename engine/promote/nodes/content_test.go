package nodes_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/promote/nodes"
)

// Reading 8 TiB of zeros takes more than an hour.
func TestHolesAreNotCompared(t *testing.T) {
	dir := t.TempDir()
	for name, last := range map[string]string{"a": "x", "same": "x", "other": "y"} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte(last), 8<<40); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for name, want := range map[string]bool{"same": true, "other": false} {
		done := make(chan error, 1)
		go func() {
			same, err := nodes.SameContent(t.Context(), root, "a", root, name)
			if err == nil && same != want {
				t.Errorf("%s: same content: %v", name, same)
			}
			done <- err
		}()
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("it reads the holes")
		}
	}
}

func TestAComparisonOfContentsCanBeCancelled(t *testing.T) {
	dir := t.TempDir()
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, size := range map[string]int64{"small": 10, "large": 2 << 20} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := nodes.SameContent(ctx, root, name, root, name); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}
