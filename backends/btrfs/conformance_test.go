//go:build linux

package btrfs_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/snapfs/snapfs/backends/btrfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	sysbtrfs "github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// within returns a place in dir, with a subvolume of its own as the tree.
func within(t testing.TB, dir string) snapshot.Place {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := sysbtrfs.Create(int(f.Fd()), "tree"); err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(dir, "tree")
	if err := os.Chmod(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	return withDataDir(t, snapshot.Place{Tree: snapshot.Tree{Path: tree}, Dir: filepath.Join(dir, "state")})
}

// withDataDir creates .snapfs, which stays, so that the leak check of the test does not report it.
func withDataDir(t testing.TB, p snapshot.Place) snapshot.Place {
	t.Helper()
	b, err := btrfs.OpenFrom(t.Context(), "btrfs", p, p.Tree.Path)
	if err == nil {
		_, err = b.Capture(t.Context(), p.Tree, "first")
	}
	if err == nil {
		err = b.Remove(t.Context(), "first")
	}
	if err == nil {
		err = b.Sweep(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A btrfs that is small enough to be filled keeps data and metadata in one space, and when that is
// full, not even a file can be truncated. So crowded takes a larger one, and preallocates all but
// some of its space for data.
const small, room = 300 << 20, 12 << 20

func crowded(t testing.TB, top string) string {
	t.Helper()
	fs, err := mount.FilesystemOf(top)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(top, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, fs.Avail-room); err != nil {
		t.Fatal(err)
	}
	return top
}

// counting turns simple quotas on, as in a pool. A kernel without them offers no limits.
func counting(t testing.TB, top string) string {
	t.Helper()
	if !sysbtrfs.SimpleQuota() {
		return top
	}
	f := treetest.Open(t, top)
	if err := sysbtrfs.SetQuota(int(f.Fd()), sysbtrfs.QuotaSimple); err != nil {
		t.Fatal(err)
	}
	return top
}

func smallFS(t testing.TB) string { return crowded(t, treetest.Small(t, "btrfs", small)) }

func subject(name string) snapshottest.Subject {
	return snapshottest.Subject{
		Name:   name,
		Driver: btrfs.Driver,
		Place:  func(t testing.TB) snapshot.Place { return within(t, counting(t, treetest.Btrfs(t))) },
		Small:  func(t testing.TB) snapshot.Place { return within(t, counting(t, smallFS(t))) },
		Data:   data,
	}
}

// data returns the directory of the backend's data, beside the tree.
func data(p snapshot.Place) []string {
	return []string{filepath.Join(filepath.Dir(p.Tree.Path), ".snapfs"), p.Dir}
}

func TestConformance(t *testing.T) { snapshottest.Run(t, subject("btrfs (root)")) }

// The tree is a directory in a subvolume, and quotas are off. Only make test-long checks this: in make test an
// ordinary user has no quotas either.
func TestConformanceOfADirectory(t *testing.T) {
	if !treetest.Long(t) {
		return
	}
	s := subject("btrfs (root, a directory)")
	s.Place = func(t testing.TB) snapshot.Place { return withDataDir(t, snapshottest.Within(t, treetest.Btrfs(t))) }
	s.Small = func(t testing.TB) snapshot.Place { return withDataDir(t, snapshottest.Within(t, smallFS(t))) }
	snapshottest.Run(t, s)
}

const (
	placesEnv = "SNAPFS_TEST_BTRFS" // a filesystem for the user's places
	smallEnv  = "SNAPFS_TEST_BTRFS_SMALL"
	smalls    = 16 // small filesystems for the user to fill
)

// TestConformanceAsUser mounts filesystems as root, and runs itself again as a user. make test checks what depends
// on the filesystem, and make test-long checks all of it.
func TestConformanceAsUser(t *testing.T) {
	treetest.OncePerRace(t)
	whole := treetest.Long(t)
	if os.Getenv(placesEnv) != "" {
		s := userSubject()
		s.StorageOnly = !whole
		snapshottest.Run(t, s)
		return
	}
	treetest.NeedRoot(t)
	user := treetest.User(t)
	env := []string{placesEnv + "=" + forUser(t, user, 2<<30)}
	for i := range smalls {
		env = append(env, smallEnv+strconv.Itoa(i)+"="+crowded(t, forUser(t, user, small)))
	}
	treetest.RunAs(t, user, t.Name(), treetest.WithEnv(env...))
}

func forUser(t testing.TB, user treetest.Account, size int64) string {
	t.Helper()
	top := treetest.Small(t, "btrfs", size, "user_subvol_rm_allowed")
	if err := os.Chown(top, user.UID, user.GID); err != nil {
		t.Fatal(err)
	}
	return top
}

func userSubject() snapshottest.Subject {
	s := subject("btrfs (user)")
	s.Place = func(t testing.TB) snapshot.Place {
		dir, err := os.MkdirTemp(os.Getenv(placesEnv), "place")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
		return within(t, dir)
	}
	used := 0
	s.Small = func(t testing.TB) snapshot.Place {
		used++
		return within(t, os.Getenv(smallEnv+strconv.Itoa(used-1)))
	}
	s.Data = func(p snapshot.Place) []string {
		if top := os.Getenv(placesEnv); filepath.Dir(filepath.Dir(p.Tree.Path)) == top {
			return []string{filepath.Join(top, ".snapfs"), p.Dir}
		}
		return data(p)
	}
	return s
}
