package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/keypoint"
	"github.com/snapfs/snapfs/internal/fault"
)

// leftForRemoval runs a command in the sandbox s, whose removal is announced before the command ends, and waits for the
// end of its supervisor. It returns the announcement.
func (b *bench) leftForRemoval() *catalog.Intent {
	b.t.Helper()
	rec, err := b.Catalog().Get("s")
	if err != nil {
		b.t.Fatal(err)
	}
	in, tell, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	defer tell.Close()
	c := b.command("echo mine > f; read x || true")
	c.Stdin = in
	p, err := b.Supervise.Exec(b.t.Context(), "s", c)
	in.Close()
	if err != nil {
		b.t.Fatal(err)
	}
	intent, err := b.Catalog().Begin(catalog.Removing, "s", rec.ID)
	if err != nil {
		b.t.Fatal(err)
	}
	tell.Close()
	if _, err := p.Wait(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.soon("the supervisor has ended", func() bool { return b.Catalog().UnderWay(catalog.Supervising, rec.ID) == nil })
	return intent
}

// isSynced reports whether the catalogue's entry of s says that its supervisor has ended and written its files.
func (b *bench) isSynced() bool {
	b.t.Helper()
	rec, err := b.Catalog().Get("s")
	if err != nil {
		b.t.Fatal(err)
	}
	return rec.Supervisor == nil
}

// failingRemoval removes the sandbox s, whose move to the trash fails, and returns the error.
func (b *bench) failingRemoval() error {
	b.t.Helper()
	b.Catalog().Rehearse(func(step string) error {
		if step == "move it to the trash" {
			return syscall.EIO
		}
		return nil
	})
	defer b.Catalog().Rehearse(fault.Of(b.t.Context()))
	return b.Remove(b.t.Context(), "s")
}

func TestASandboxThatIsBeingRemovedIsNotWrittenToTheDisk(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.write("f", "real\n")
		b.new("s")
		intent := b.leftForRemoval()
		if b.isSynced() {
			t.Error("its supervisor has written its files")
		}
		if err := intent.End(); err != nil { // as a removal that was given up at the worst moment
			t.Fatal(err)
		}
		if got := b.in("s", "cat f"); got != "mine\n" {
			t.Errorf("in the next command f is %q", got)
		}
		intent = b.leftForRemoval()
		if err := b.Remove(t.Context(), "s"); err != nil {
			t.Error(err)
		}
		if err := intent.End(); err != nil {
			t.Error(err)
		}
		b.sound("after the removal")
	})
}

func TestASandboxThatAKilledCommandWasToRemoveIsWrittenToTheDisk(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.new("s")
		b.leftForRemoval()
		found, err := filepath.Glob(filepath.Join(b.state, "active/*.removing.*"))
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		dir, name := filepath.Split(found[0])
		_, rest, _ := strings.Cut(name, ".")
		const nobody = 1 << 30 // no process has so large an id
		if err := os.Rename(found[0], fmt.Sprint(dir, nobody, ".", rest)); err != nil {
			t.Fatal(err)
		}
		e, said := b.reopen()
		b.Engine = e
		if len(*said) != 1 || !strings.Contains((*said)[0], "it is still there") || !b.isSynced() {
			t.Errorf("it is said: %q; synced: %v", *said, b.isSynced())
		}
		if got := b.in("s", "cat f"); got != "mine\n" {
			t.Errorf("f is %q", got)
		}
		b.sound("after the repair")
	})
}

func TestARemovalThatFailsWritesTheSandboxToTheDisk(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.new("s")
		if err := b.leftForRemoval().End(); err != nil {
			t.Fatal(err)
		}
		err := b.failingRemoval()
		if err == nil || !b.isSynced() {
			t.Errorf("the removal says %v; synced: %v", err, b.isSynced())
		}
		if got := b.in("s", "cat f"); got != "mine\n" {
			t.Errorf("f is %q", got)
		}
	})
}

// TestARemovalTakesNoPostponedSnapshot of the sandbox, which would first write its files to the disk. After a failure the
// next command takes it.
func TestARemovalTakesNoPostponedSnapshot(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.withKeyPoints("s", catalog.KeyPoints{At: []string{catalog.AtPlan}})
		b.in("s", "echo mine > f")
		b.halt("s")
		if err := b.KeyPoints.Postpone("s", catalog.Why{Point: catalog.AtPlan, When: keypoint.After}); err != nil {
			t.Fatal(err)
		}
		err := b.failingRemoval()
		if err == nil || !b.KeyPoints.HasPostponed("s") {
			t.Errorf("the removal says %v; the snapshot is still due: %v", err, b.KeyPoints.HasPostponed("s"))
		}
		b.in("s", "true")
		if rec, err := b.Catalog().Get("s"); err != nil || len(rec.Snapshots) != 1 || b.KeyPoints.HasPostponed("s") {
			t.Errorf("afterwards: %+v, %v", rec, err)
		}
	})
}
