package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// It is started in the background, and may begin when the person has removed what
// it was to clean.
func TestASweeperDoesNotBringBackWhatWasRemoved(t *testing.T) {
	state := filepath.Join(treetest.Dir(t), "state")
	if out, err := exec.Command(program(), "sweeper", state).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v %s", err, out)
	}
	if _, err := os.Lstat(state); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state directory: %v", err)
	}
}
