package baseline

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/engine/diff"
)

func TestAComparisonWithTheMergeBaseCanBeCancelled(t *testing.T) {
	var nodes [2]*diff.Node
	var roots [2]*os.File
	for i := range roots {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte("same"), 0o644); err != nil {
			t.Fatal(err)
		}
		var err error
		if roots[i], err = OpenRoot(dir); err != nil {
			t.Fatal(err)
		}
		defer roots[i].Close()
		l := RootedReader{Root: roots[i]}
		defer l.Close()
		if nodes[i], err = l.Node("f"); err != nil {
			t.Fatal(err)
		}
	}
	base := MergeBase{Root: "/w", Baseline: &Baseline{}, Frozen: RootedReader{Root: roots[0]}}
	defer base.Frozen.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	between := func() error {
		c, err := base.Between(ctx, "f", nodes[0], nodes[1], roots[1])
		if err == nil && c != nil && c.What&diff.Content != 0 {
			t.Errorf("the content differs: %+v", c)
		}
		return err
	}
	if err := between(); err != nil {
		t.Error(err)
	}
	cancel()
	if err := between(); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}
