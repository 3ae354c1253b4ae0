package relay

import (
	"os"
	"testing"

	"github.com/snapfs/snapfs/internal/vfs"
)

func reopenAs(t *testing.T, f *os.File) *os.File {
	t.Helper()
	copied, err := vfs.Duplicate(f)
	if err != nil {
		t.Fatal(err)
	}
	return copied
}
