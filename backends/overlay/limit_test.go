//go:build linux

package overlay_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/backends/overlay"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/projquota"
	"github.com/snapfs/snapfs/internal/treetest"
)

// onProjects returns a subject on a filesystem with project quotas, if the kernel has them.
func onProjects(t *testing.T, fs string, size int64) (s snapshottest.Subject, counts bool) {
	s = byRoot()
	s.Name = "overlay (root, " + fs + " with project quotas)"
	top, counts := treetest.Projects(t, fs, size)
	s.Place = func(t testing.TB) snapshot.Place {
		dir, err := os.MkdirTemp(top, "place")
		must(t, err)
		t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
		return snapshottest.Within(t, dir)
	}
	s.Small = func(t testing.TB) snapshot.Place {
		dir, _ := treetest.Projects(t, "ext4", 64<<20)
		return snapshottest.Within(t, dir)
	}
	return s, counts
}

func TestConformanceOnProjectsOfExt4(t *testing.T) { conformsOnProjects(t, "ext4") }

func TestConformanceOnProjectsOfXFS(t *testing.T) { conformsOnProjects(t, "xfs") }

func conformsOnProjects(t *testing.T, fs string) {
	if s, counts := onProjects(t, fs, 400<<20); counts {
		snapshottest.Run(t, s)
		return
	}
	refused(t)
}

// refused checks that a limit without quotas is an error with a hint.
func refused(t *testing.T) {
	b, err := overlay.Open(t.Context(), snapshottest.OnDisk(t))
	must(t, err)
	prober, ok := b.(snapshot.Limiter)
	if !ok {
		t.Fatal("the backend is no Limiter")
	}
	err = prober.CanLimit(t.Context(), snapshot.DiskLimit{Bytes: 1 << 20})
	var e *errs.Error
	if !errors.Is(err, errs.ErrNotSupported) || !errors.As(err, &e) || !strings.Contains(strings.Join(e.Hints, "\n"), "snapfs pool create") {
		t.Errorf("%v, %+v", err, e)
	}
}

// ours counts the projects of snapfs that have a limit on a filesystem.
func ours(t *testing.T, top string) (n int) {
	t.Helper()
	return len(treetest.LimitedProjects(t, top, 0x5a<<24, 0x5b<<24))
}

func TestRemovedForksLeaveNoLimitedProject(t *testing.T) {
	top, counts := treetest.Projects(t, "ext4", 256<<20)
	if !counts {
		refused(t)
		return
	}
	place := snapshottest.Within(t, top)
	must(t, os.WriteFile(place.Tree.Path+"/file", nil, 0o644))
	opened, err := overlay.Open(t.Context(), place)
	must(t, err)
	b, ok := opened.(interface {
		snapshot.Backend
		snapshot.Limiter
	})
	if !ok {
		t.Fatal("the backend lacks an optional power")
	}
	_, err = b.Capture(t.Context(), place.Tree, "s1")
	must(t, err)
	limit := func(id snapshot.ForkID) {
		_, err := b.Fork(t.Context(), "s1", id)
		must(t, err)
		must(t, b.LimitFork(t.Context(), id, snapshot.DiskLimit{Bytes: 1 << 20, Inodes: 100}))
	}
	limit("f1")
	limit("f2")
	if n := ours(t, top); n != 2 {
		t.Errorf("two forks with a limit have %d projects", n)
	}
	_, err = b.Seal(t.Context(), "f1", "s2", snapshot.Idle)
	must(t, err)
	must(t, b.RemoveFork(t.Context(), "f1"))
	if n := ours(t, top); n != 1 {
		t.Errorf("after the removal of one fork %d projects have a limit", n)
	}
	must(t, os.Remove(filepath.Join(place.Dir, "forks/f2"))) // as a process leaves it that is killed in RemoveFork
	must(t, b.Sweep(t.Context()))
	if n := ours(t, top); n != 0 {
		t.Errorf("after the sweep %d projects have a limit", n)
	}
	f, err := b.Fork(t.Context(), "s1", "f3") // possibly in a reused layer
	must(t, err)
	if id, err := projquota.Of(int(treetest.Open(t, f.View.Overlay.Upper).Fd())); err != nil || id != 0 {
		t.Errorf("a new fork is charged to the project %x, %v", id, err)
	}
}
