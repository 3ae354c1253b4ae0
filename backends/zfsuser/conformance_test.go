//go:build vm

package zfsuser_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/servetest"
	"github.com/snapfs/snapfs/backends/zfsuser"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// These tests need ZFS, and a pool of their own, named by SNAPFS_TEST_ZFS. Root delegates, and runs
// them as a new user in the first mount namespace, where the kernel mounts snapshots. `make
// check-vm WHAT=zfs-user` provides all of that.

const (
	largeEnv = "SNAPFS_TEST_DELEGATED"       // the mount point of a dataset that belongs to the user
	smallEnv = "SNAPFS_TEST_DELEGATED_SMALL" // a small filesystem with a dataset mounted at tree
)

// TestMain makes the test binary the program that serves trees.
func TestMain(m *testing.M) { servetest.Main(m) }

func driver() snapshot.Driver {
	return servetest.Driver(zfsuser.Driver)
}

func TestConformance(t *testing.T) {
	if os.Getenv(largeEnv) == "" {
		asDelegate(t)
		return
	}
	snapshottest.Run(t, snapshottest.Subject{
		Name: "zfs-fusecow (user)", Driver: driver(), Place: place, Small: small, Damage: damage,
	})
}

// place returns a place whose tree is a directory of the dataset, and whose state is on another
// filesystem.
func place(t testing.TB) snapshot.Place {
	t.Helper()
	tree, err := os.MkdirTemp(os.Getenv(largeEnv), "place")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(tree)) })
	must(t, os.Mkdir(tree+"/tree", 0o755))
	return snapshot.Place{Tree: snapshot.Tree{Path: tree + "/tree"}, Dir: treetest.Dir(t) + "/state"}
}

// small returns the place on the small filesystem: the suite fills the storage of the layers.
func small(t testing.TB) snapshot.Place {
	t.Helper()
	top := os.Getenv(smallEnv)
	t.Cleanup(func() {
		list, err := filepath.Glob(top + "/tree/*")
		must(t, err)
		for _, path := range append(list, top+"/state", top+"/ballast", top+"/clone") {
			must(t, os.RemoveAll(path))
		}
	})
	return snapshot.Place{Tree: snapshot.Tree{Path: top + "/tree"}, Dir: top + "/state"}
}

// damage corrupts the log of a fork's layer at the records of the file that is to be lost.
func damage(t testing.TB, place snapshot.Place, fork snapshot.ForkID) {
	t.Helper()
	logs, err := filepath.Glob(place.Dir + "/layers/" + string(fork) + "-*/log")
	must(t, err)
	if len(logs) != 1 {
		t.Fatalf("the logs of %s are %q", fork, logs)
	}
	log, err := os.ReadFile(logs[0])
	must(t, err)
	must(t, os.WriteFile(logs[0], bytes.Replace(log, []byte("lost"), []byte("1ost"), 1), 0o600))
}

// granted lists exactly the grants that a user needs.
const granted = "snapshot,userprop,hold,release,destroy,mount"

// asDelegate runs the test again as a user to whom the datasets are delegated. Remaining snapshots
// are an error.
func asDelegate(t *testing.T) {
	user := treetest.User(t)
	top, small := treetest.Dir(t), treetest.Small(t, "ext4", 32<<20)
	dataset := os.Getenv("SNAPFS_TEST_ZFS") + "/" + filepath.Base(top)
	sh(t, "create", "-o", "mountpoint="+top+"/large", dataset)
	t.Cleanup(func() {
		if left := sh(t, "list", "-H", "-r", "-t", "snapshot", "-o", "name", dataset); left != "" {
			t.Errorf("left behind: %q", left)
			for name := range strings.FieldsSeq(left) {
				_, _ = run.Output(context.WithoutCancel(t.Context()), "zfs", "release", "snapfs", name) // it may have no hold
			}
		}
		sh(t, "destroy", "-f", "-R", dataset)
	})
	sh(t, "create", "-o", "mountpoint="+small+"/tree", dataset+"/small")
	must(t, os.RemoveAll(small+"/lost+found"))
	for _, dir := range []string{top + "/large", small, small + "/tree"} {
		must(t, os.Chown(dir, user.UID, user.GID))
	}
	sh(t, "allow", user.Name, granted, dataset)
	treetest.RunAs(t, user, t.Name(), treetest.WithEnv(largeEnv+"="+top+"/large", smallEnv+"="+small))
}

// sh runs zfs(8), which must succeed, and returns its output.
func sh(t testing.TB, args ...string) string {
	t.Helper()
	out, err := run.Output(context.WithoutCancel(t.Context()), "zfs", args...)
	if err != nil {
		t.Fatal(args, err)
	}
	return strings.TrimSpace(string(out))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestMissingGrantsAreNamed checks that exactly the missing grants are named, with the command that
// grants them.
func TestMissingGrantsAreNamed(t *testing.T) {
	if tree := os.Getenv(largeEnv); tree != "" {
		asStranger(t, tree)
		return
	}
	user := treetest.User(t)
	top := treetest.Dir(t)
	dataset := os.Getenv("SNAPFS_TEST_ZFS") + "/" + filepath.Base(top)
	sh(t, "create", "-o", "mountpoint="+top+"/large", dataset)
	t.Cleanup(func() { sh(t, "destroy", "-f", "-R", dataset) })
	must(t, os.Chown(top+"/large", user.UID, user.GID))
	all := strings.Split(granted, ",")
	for _, c := range []struct {
		how     []string
		missing string
	}{
		{nil, granted},
		{[]string{"-d", user.Name, granted, dataset}, granted}, // on descendants only
		{[]string{"-l", user.Name, strings.Join(all[:3], ","), dataset}, strings.Join(all[3:], ",")},
		{[]string{"-g", user.Name, "release,destroy", dataset}, "mount"}, // to the user's group
		{[]string{"-s", "@more", "mount,rename", dataset}, "mount"},
		{[]string{"-e", "@more", dataset}, ""},
	} {
		if c.how != nil {
			sh(t, append([]string{"allow"}, c.how...)...)
		}
		treetest.RunAs(t, user, t.Name(), treetest.WithEnv(largeEnv+"="+top+"/large", missingEnv+"="+c.missing))
	}
}

const missingEnv = "SNAPFS_TEST_MISSING"

func asStranger(t *testing.T, tree string) {
	missing := os.Getenv(missingEnv)
	_, err := driver().Open(t.Context(), snapshot.Place{Tree: snapshot.Tree{Path: tree}, Dir: treetest.Dir(t) + "/state"})
	if missing == "" {
		must(t, err)
		return
	}
	var e *errs.Error
	if !errors.As(err, &e) || !errors.Is(err, errs.ErrNotSupported) || len(e.Hints) != 1 {
		t.Fatalf("without %s: %#v", missing, err)
	}
	if !strings.Contains(err.Error(), "has not granted "+strings.ReplaceAll(missing, ",", ", ")+" on ") ||
		!strings.Contains(e.Hints[0], "sudo zfs allow "+os.Getenv("USER")+" "+missing+" ") {
		t.Errorf("without %s: %v, hint %q", missing, err, e.Hints)
	}
}
