package pipeline

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestMain makes the program and a copy of the example where every user may read
// them.
func TestMain(m *testing.M) {
	os.Exit(treetest.WithProgram(m.Run, func(_ context.Context, dir string) error {
		return os.CopyFS(filepath.Join(dir, "example"), os.DirFS("../../examples/pipeline"))
	}))
}
