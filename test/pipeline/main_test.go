package pipeline

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/run"
)

// built names the variable that hands what TestMain made on to a test that runs
// as another user.
const built = "SNAPFS_TEST_BUILT"

func TestMain(m *testing.M) { os.Exit(withProgram(m.Run)) }

// withProgram makes the program and a copy of the example where every user may
// read them.
func withProgram(tests func() int) int {
	if os.Getenv(built) != "" {
		return tests()
	}
	dir, err := os.MkdirTemp("/var/tmp", "snapfs-pipeline-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Chmod(dir, 0o755)
	}
	if err == nil {
		_, err = run.Output(context.Background(), "go", "build", "-o", filepath.Join(dir, "snapfs"), "../../cmd/snapfs")
	}
	if err == nil {
		err = os.CopyFS(filepath.Join(dir, "example"), os.DirFS("../../examples/pipeline"))
	}
	if err == nil {
		err = os.Setenv(built, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return tests()
}
