//go:build linux

package overlay_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
)

// volatile mounts a fork with the option volatile, as the product does, writes a file and unmounts.
func (s *fixture) volatile(id snapshot.ForkID, name string) error {
	s.Helper()
	mount, err := s.mountVolatile(id)
	if err != nil {
		return err
	}
	defer mount.Close()
	return os.WriteFile("/proc/self/fd/"+strconv.Itoa(int(mount.Fd()))+"/"+name, []byte(name), 0o644)
}

// mountVolatile mounts a fork with the option volatile, at no path. Closing the file unmounts it.
func (s *fixture) mountVolatile(id snapshot.ForkID) (*os.File, error) {
	s.Helper()
	f, err := s.LookupFork(s.Context(), id)
	must(s, err)
	o := options(f.View.Overlay)
	o.Volatile = true
	return mount.NewOverlay(o)
}

func (s *fixture) sync(id snapshot.ForkID) {
	s.Helper()
	must(s, s.Sync(s.Context(), id))
}

// reboot changes the boot ids in the records to those of an earlier boot.
func (s *fixture) reboot() {
	s.Helper()
	now, err := proc.BootID()
	must(s, err)
	before := strings.Repeat("0", len(now))
	forks, err := filepath.Glob(s.place.Dir + "/forks/*")
	must(s, err)
	for _, path := range forks {
		text, err := os.ReadFile(path)
		must(s, err)
		must(s, os.WriteFile(path, []byte(strings.Replace(string(text), now, before, 1)), 0o600))
	}
	notes, err := filepath.Glob(s.place.Dir + "/layers/*/unsettled")
	must(s, err)
	for _, path := range notes {
		must(s, errors.Join(os.Remove(path), os.Symlink(before, path)))
	}
}

func volatileFixture(t *testing.T) *fixture {
	s := newFixture(t, snapshottest.OnDisk(t))
	must(t, os.WriteFile(s.place.Tree.Path+"/file", []byte("base"), 0o644))
	s.capture("base")
	s.fork("base", "work")
	must(t, s.volatile("work", "first"))
	return s
}

func TestASyncedForkCanBeMountedAgain(t *testing.T) {
	treetest.NeedRoot(t)
	syncedForkIsMounted(t)
}

func TestASyncedForkCanBeMountedAgainByAnOrdinaryUser(t *testing.T) {
	if treetest.AsUser(t) && treetest.InNamespace(t) {
		syncedForkIsMounted(t)
	}
}

func syncedForkIsMounted(t *testing.T) {
	s := volatileFixture(t)
	if err := s.volatile("work", "second"); err == nil {
		t.Fatal("this kernel mounts a volatile layer twice, so no sync is needed")
	}
	s.sync("work")
	s.sync("work")
	must(t, s.volatile("work", "second"))
	s.sync("work")
	s.reboot()
	must(t, s.volatile("work", "third")) // synced once, and then of this boot
	s.sync("work")
	s.in("work", func(root *os.File) {
		for _, name := range []string{"file", "first", "second", "third"} {
			_, err := vfs.Lstat(int(root.Fd()), name)
			must(t, err)
		}
	})
}

// A fork whose upper layer is empty has no data to write: a sync of the whole filesystem would write that of all other
// programs, which takes long on a busy disk.
func TestAForkWithoutChangesIsSyncedWithoutItsFilesystem(t *testing.T) {
	treetest.NeedRoot(t)
	s := volatileFixture(t)
	steps := func(id snapshot.ForkID) (list []string) {
		ctx := treetest.WithFaults(t.Context(), func(step string) error {
			list = append(list, step)
			return nil
		})
		must(t, s.Sync(ctx, id))
		return list
	}
	want := func(what string, got []string, steps ...string) {
		t.Helper()
		if !slices.Equal(got, steps) {
			t.Errorf("%s takes the steps %q, want %q", what, got, steps)
		}
	}
	want("syncing a changed fork", steps("work"), "sync the layers", "remove the marks")
	s.fork("base", "same")
	unchanged, err := s.mountVolatile("same")
	must(t, err)
	must(t, unchanged.Close())
	want("syncing an unchanged fork", steps("same"), "sync the empty layer", "remove the marks")
	want("syncing it again", steps("same"))
	must(t, s.volatile("same", "file of its own")) // the kernel mounts it again
	want("syncing it with a file", steps("same"), "sync the layers", "remove the marks")
}

func TestSealingAnIdleForkNeedsNoSync(t *testing.T) {
	treetest.NeedRoot(t)
	s := volatileFixture(t)
	s.seal("work", "s1", snapshot.Idle)
	must(t, s.volatile("work", "second"))
	s.fork("s1", "other")
	must(t, s.volatile("other", "other"))
}

// Layers that a power cut may have torn are never accepted as sound.
func TestUnsyncedLayersOfAnEarlierBootAreCorrupt(t *testing.T) {
	treetest.NeedRoot(t)
	s := volatileFixture(t)
	corrupt := func(what string, err error) {
		t.Helper()
		var e *errs.Error
		if !errors.Is(err, errs.ErrCorrupt) || !errors.As(err, &e) || len(e.Hints) == 0 {
			t.Errorf("%s returns %v, want ErrCorrupt with a hint", what, err)
		}
	}
	s.reboot()
	_, err := s.LookupFork(t.Context(), "work")
	corrupt("looking the fork up", err)
	_, err = s.Seal(t.Context(), "work", "s1", snapshot.Idle)
	corrupt("sealing it", err)
	corrupt("settling it", s.Sync(t.Context(), "work"))
	must(t, s.RemoveFork(t.Context(), "work"))

	s.fork("base", "work")
	must(t, s.volatile("work", "first"))
	s.seal("work", "s1", snapshot.Idle)
	s.reboot()
	_, err = s.Lookup(t.Context(), "s1")
	corrupt("looking a snapshot up", err)
	_, err = s.Fork(t.Context(), "s1", "f1")
	corrupt("forking it", err)
	var e *errs.Error
	if errors.As(err, &e) { // execute the hint
		note := strings.Fields(e.Hints[1])[2]
		must(t, os.RemoveAll(note))
	}
	s.fork("s1", "f1")
}

func TestASweepSyncsFrozenLayers(t *testing.T) {
	treetest.NeedRoot(t)
	s := volatileFixture(t)
	s.seal("work", "s1", snapshot.Idle)
	s.sweep()
	s.reboot()
	s.snap("s1")
}
