package catalog_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
)

// A removal that is interrupted while another command holds the sandbox's lock says so, and removes nothing.
func TestAnInterruptedDropChangesNothing(t *testing.T) {
	c, err := catalog.Open(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(c.Path("s"), 0o700); err != nil {
		t.Fatal(err)
	}
	other, err := os.Open(c.Path("s"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := syscall.Flock(int(other.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Drop(ctx, "s"); !errors.Is(err, errs.ErrInterrupted) || errors.Is(err, errs.ErrBusy) {
		t.Errorf("of a locked sandbox: %v", err)
	}
	if !c.Claimed("s") {
		t.Error("the sandbox has gone")
	}
	if err := syscall.Flock(int(other.Fd()), syscall.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if err := c.Drop(t.Context(), "s"); err != nil || c.Claimed("s") {
		t.Errorf("of a free sandbox: %v, and it is there: %t", err, c.Claimed("s"))
	}
}
