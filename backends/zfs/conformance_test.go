//go:build vm

package zfs_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/backends/zfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// These tests need ZFS, and a pool of their own, named by SNAPFS_TEST_ZFS. `make check-vm WHAT=zfs`
// provides both.

func pool(t testing.TB) string {
	t.Helper()
	name := os.Getenv("SNAPFS_TEST_ZFS")
	if name == "" {
		t.Fatal("SNAPFS_TEST_ZFS names no pool")
	}
	return name
}

// sh runs zfs(8), which must succeed, and returns its output.
func sh(t testing.TB, args ...string) string {
	t.Helper()
	out, err := run.Output(t.Context(), "zfs", args...)
	if err != nil {
		t.Fatal(args, err)
	}
	return strings.TrimSpace(string(out))
}

// dataset makes a mounted dataset, which is destroyed with the test. At that time it may contain
// only .snapfs and the test's own datasets.
func dataset(t testing.TB, options ...string) (name, dir string) {
	t.Helper()
	top := treetest.Dir(t)
	name = pool(t) + "/" + filepath.Base(top)
	dir = top + "/fs"
	sh(t, append(append([]string{"create", "-o", "mountpoint=" + dir}, options...), name)...)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context()) // t.Context ends earlier
		var left []string
		list, err := run.Output(ctx, "zfs", "list", "-H", "-t", "all", "-r", "-o", "name", name)
		for line := range strings.Lines(string(list)) {
			if line = strings.TrimSuffix(line, "\n"); strings.ContainsAny(line, "@") || strings.Contains(line, ".snapfs/") {
				left = append(left, line)
			}
		}
		if len(left) > 0 || err != nil {
			t.Errorf("left behind: %v, %v", left, err)
		}
		away(ctx, t, name, left)
	})
	return name, dir
}

// away destroys a dataset with all dependents, held or not.
func away(ctx context.Context, t testing.TB, name string, left []string) {
	t.Helper()
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); strings.HasPrefix(f[0], name+"@") || strings.HasPrefix(f[0], name+"/") && strings.Contains(f[0], "/.snapfs/") {
			_, _ = run.Output(ctx, "umount", "-l", f[1])
		}
	}
	for _, l := range left {
		if strings.Contains(l, "@") {
			_, _ = run.Output(ctx, "zfs", "release", "snapfs", l) // it may have no hold
		}
	}
	if _, err := run.Output(ctx, "zfs", "destroy", "-f", "-R", name); err != nil {
		t.Error(err)
	}
}

// place returns a place whose tree is a dataset of its own, and whose state is on another
// filesystem.
func place(t testing.TB, options ...string) snapshot.Place {
	name, dir := dataset(t, options...)
	sh(t, "create", name+"/tree")
	return snapshot.Place{Tree: snapshot.Tree{Path: dir + "/tree"}, Dir: filepath.Dir(dir) + "/state"}
}

// small is the quota of a dataset that is filled.
const small = "quota=20M"

// A ballast is a reservation of the rest of a dataset's quota. A file would not do: at its quota
// ZFS refuses to truncate one, and frees deleted files only some transactions later. A reservation
// is exact, and is released at once.
type ballast struct {
	dataset string // the dataset with the quota
	dir     string // its mount point
	size    int64
}

func newBallast(t testing.TB, p snapshot.Place) snapshottest.Ballast {
	b := &ballast{dir: filepath.Dir(p.Tree.Path)}
	b.dataset = sh(t, "list", "-H", "-o", "name", b.dir)
	sh(t, "create", "-o", "mountpoint=none", b.name())
	return b
}

func (b *ballast) name() string { return b.dataset + "/ballast" }

func (b *ballast) Fill(t testing.TB) {
	t.Helper()
	for range 10 { // freed space becomes available a few transactions later
		if _, err := run.Output(t.Context(), "zpool", "sync", pool(t)); err != nil {
			t.Fatal(err)
		}
		free, err := strconv.ParseInt(sh(t, "get", "-H", "-p", "-o", "value", "available", b.dataset), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if free == 0 {
			if err := os.WriteFile(b.dir+"/more", make([]byte, 64<<10), 0o600); !errors.Is(err, unix.EDQUOT) {
				t.Fatalf("writing to a full dataset returns %v", err)
			}
			return
		}
		b.reserve(t, b.size+free)
	}
	t.Fatal("the quota cannot be filled")
}

func (b *ballast) Leave(t testing.TB, room int64) {
	t.Helper()
	b.reserve(t, max(0, b.size-room))
}

func (b *ballast) reserve(t testing.TB, size int64) {
	t.Helper()
	sh(t, "set", "refreservation="+strconv.FormatInt(size, 10), b.name())
	b.size = size
}

func subject() snapshottest.Subject {
	return snapshottest.Subject{
		Name:    "zfs (root)",
		Driver:  zfs.Driver,
		Place:   func(t testing.TB) snapshot.Place { return place(t) },
		Small:   func(t testing.TB) snapshot.Place { return place(t, "-o", small) },
		Ballast: newBallast,
	}
}

func TestConformance(t *testing.T) { snapshottest.Run(t, subject()) }

// The tree is a directory in a dataset.
func TestConformanceOfADirectory(t *testing.T) {
	within := func(t testing.TB, options ...string) snapshot.Place {
		_, dir := dataset(t, options...)
		p := snapshottest.Within(t, dir)
		p.Dir = filepath.Dir(dir) + "/state"
		return p
	}
	s := subject()
	s.Name = "zfs (root, a directory)"
	s.Place = func(t testing.TB) snapshot.Place { return within(t) }
	s.Small = func(t testing.TB) snapshot.Place { return within(t, "-o", small) }
	snapshottest.Run(t, s)
}
