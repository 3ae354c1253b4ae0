//go:build vm

package zfs_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/backends/zfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// These tests need ZFS, and a pool that is theirs: SNAPFS_TEST_ZFS names it.
// `make check-vm WHAT=zfs` has both.

func pool(t testing.TB) string {
	t.Helper()
	name := os.Getenv("SNAPFS_TEST_ZFS")
	if name == "" {
		t.Fatal("SNAPFS_TEST_ZFS names no pool")
	}
	return name
}

// sh runs zfs(8), which has to go well, and answers with what it says.
func sh(t testing.TB, args ...string) string {
	t.Helper()
	out, err := run.Output(t.Context(), "zfs", args...)
	if err != nil {
		t.Fatal(args, err)
	}
	return strings.TrimSpace(string(out))
}

// dataset makes one, mounted, which goes with the test; what is in it then but
// .snapfs and what the test made itself is an error.
func dataset(t testing.TB, options ...string) (name, dir string) {
	t.Helper()
	top := treetest.Dir(t)
	name = pool(t) + "/" + filepath.Base(top)
	dir = top + "/fs"
	sh(t, append(append([]string{"create", "-o", "mountpoint=" + dir}, options...), name)...)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context()) // which ends before this
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

// away destroys a dataset with all that depends on it, held or not.
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
			_, _ = run.Output(ctx, "zfs", "release", "snapfs", l) // it may not be held
		}
	}
	if _, err := run.Output(ctx, "zfs", "destroy", "-f", "-R", name); err != nil {
		t.Error(err)
	}
}

// place is one whose tree is a dataset of its own, and whose state lies on
// another filesystem.
func place(t testing.TB, options ...string) snapshot.Place {
	name, dir := dataset(t, options...)
	sh(t, "create", name+"/tree")
	return snapshot.Place{Tree: snapshot.Tree{Path: dir + "/tree"}, Dir: filepath.Dir(dir) + "/state"}
}

// small is the quota of a place that gets filled up.
const small = "quota=20M"

func subject() snapshottest.Subject {
	return snapshottest.Subject{
		Name:   "zfs (root)",
		Driver: zfs.Driver(),
		Place:  func(t testing.TB) snapshot.Place { return place(t) },
		Small:  func(t testing.TB) snapshot.Place { return place(t, "-o", small) },
	}
}

func TestConformance(t *testing.T) { snapshottest.Run(t, subject()) }

// A directory in a dataset is a tree as well.
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
