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

// makeDamaged makes a sandbox whose record cannot be read.
func makeDamaged(t *testing.T, c *catalog.Catalog, name string) {
	t.Helper()
	if err := c.Create(newRecord(name)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.Path(name), "record.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDropTakesOnlyADamagedSandbox drops one whose record is damaged, one without a record, and one that is as it
// should be, such as one that another command has just made under the name.
func TestDropTakesOnlyADamagedSandbox(t *testing.T) {
	c := open(t)
	makeDamaged(t, c, "damaged")
	makeDamaged(t, c, "bare")
	if err := os.Remove(filepath.Join(c.Path("bare"), "record.json")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"damaged", "bare"} {
		if err := c.Drop(t.Context(), name); err != nil || c.Claimed(name) {
			t.Errorf("%s: claimed %v: %v", name, c.Claimed(name), err)
		}
	}
	if err := c.Drop(t.Context(), "damaged"); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("one that is gone: %v", err)
	}
	r := newRecord("sound")
	if err := c.Create(r); err != nil {
		t.Fatal(err)
	}
	if err := c.Drop(t.Context(), "sound"); !errors.Is(err, errs.ErrBusy) {
		t.Errorf("a sandbox whose record can be read: %v", err)
	}
	if got, err := c.Get("sound"); err != nil || got.ID != r.ID {
		t.Errorf("it is gone: %v", err)
	}
}

// TestDropLeavesTheSandboxThatFollows removes a damaged sandbox, which another command has locked, while that
// command removes it and makes a new one of the same name.
func TestDropLeavesTheSandboxThatFollows(t *testing.T) {
	c := open(t)
	makeDamaged(t, c, "x")
	r := newRecord("new") // it gets the name x at once, so that the name is never free
	if err := c.Create(r); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Open(c.Path("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	dropped := make(chan error)
	go func() { dropped <- c.Drop(t.Context(), "x") }()
	if err := os.Rename(c.Path("x"), filepath.Join(c.Dir(), "trash", "x.other")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(c.Path("new"), c.Path("x")); err != nil {
		t.Fatal(err)
	}
	lock.Close()
	if err := <-dropped; !errors.Is(err, errs.ErrBusy) && !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("the name belongs to another sandbox: %v", err)
	}
	if got, err := c.Get("x"); err != nil || got.ID != r.ID {
		t.Errorf("the new sandbox is gone: %v", err)
	}
}

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
