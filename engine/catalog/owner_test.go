package catalog

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

func TestAStateDirectoryThatOthersCanChangeIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if _, err := Open(dir); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o777, 0o770, 0o702} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); !errors.Is(err, errs.ErrDenied) {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err != nil {
		t.Error(err)
	}
}

// Root does not trust another user's directory either.
func TestAStateDirectoryOfAnotherUserIsRefused(t *testing.T) {
	treetest.NeedRoot(t)
	dir := filepath.Join(t.TempDir(), "state")
	for range 2 { // an empty one, and a used one
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); !errors.Is(err, errs.ErrDenied) {
			t.Errorf("opened: %v", err)
		}
		if err := os.Chown(dir, 0, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); err != nil {
			t.Fatal(err)
		}
	}
}
