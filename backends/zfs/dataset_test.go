//go:build vm

package zfs_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/backends/zfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// opened returns a backend for a place.
func opened(t testing.TB, p snapshot.Place) *zfs.Backend {
	t.Helper()
	b, err := zfs.Open(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return b.(*zfs.Backend)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// of returns the dataset that is mounted at a place's tree.
func of(t testing.TB, p snapshot.Place) string {
	t.Helper()
	return sh(t, "list", "-H", "-o", "name", p.Tree.Path)
}

// grown captures the tree as s1 and forks it as f1; both are removed at the end.
func grown(t testing.TB, b *zfs.Backend, p snapshot.Place) (snapshot.Snapshot, snapshot.Fork) {
	t.Helper()
	s, err := b.Capture(t.Context(), p.Tree, "s1")
	must(t, err)
	f, err := b.Fork(t.Context(), "s1", "f1")
	must(t, err)
	return s, f
}

func gone(t testing.TB, b *zfs.Backend) {
	t.Helper()
	must(t, b.RemoveFork(t.Context(), "f1"))
	must(t, b.Remove(t.Context(), "s1"))
	must(t, b.Sweep(t.Context()))
}

func refused(t testing.TB, args ...string) {
	t.Helper()
	if out, err := run.Output(t.Context(), "zfs", args...); err == nil {
		t.Errorf("zfs %s succeeds: %s", strings.Join(args, " "), out)
	}
}

func TestAForeignDestroyCannotRemoveABase(t *testing.T) {
	p := place(t)
	b := opened(t, p)
	must(t, os.WriteFile(p.Tree.Path+"/file", []byte("base"), 0o600))
	s, err := b.Capture(t.Context(), p.Tree, "s1")
	must(t, err)
	name := sh(t, "list", "-H", "-t", "snapshot", "-o", "name", of(t, p))
	refused(t, "destroy", name)
	refused(t, "destroy", "-R", name)
	refused(t, "rollback", "-r", of(t, p)+"@none")
	if text, err := os.ReadFile(s.View.Path + "/file"); string(text) != "base" {
		t.Errorf("the base holds %q, %v", text, err)
	}
	gone(t, b)
}

// The name of the dataset does not matter.
func TestADatasetWithoutTheMarkIsNeitherUsedNorDestroyed(t *testing.T) {
	p := place(t)
	b, tree := opened(t, p), of(t, p)
	sh(t, "create", "-o", "mountpoint=legacy", tree+"/.snapfs")
	_, err := b.Capture(t.Context(), p.Tree, "s1")
	must(t, err)
	if _, err := b.Fork(t.Context(), "s1", "f1"); !errors.Is(err, errs.ErrDenied) {
		t.Errorf("a fork in a .snapfs without the mark: %v", err)
	}
	sh(t, "destroy", tree+"/.snapfs")
	_, err = b.Fork(t.Context(), "s1", "f1")
	must(t, err)
	fork := sh(t, "list", "-H", "-r", "-d", "1", "-o", "name", tree+"/.snapfs")
	fork = fork[strings.IndexByte(fork, '\n')+1:]
	sh(t, "inherit", "snapfs:mark", fork) // as if it belonged to another program
	gone(t, b)
	if got := sh(t, "list", "-H", "-o", "name", fork); got != fork {
		t.Errorf("the dataset was destroyed: %q", got)
	}
	sh(t, "destroy", fork) // the base, whose last clone it was, is destroyed with it
}

// The dataset is read-only, mounted by hand, or has visible snapshots.
func TestAForkOfAReadOnlyDatasetIsWritable(t *testing.T) {
	p := place(t)
	tree := of(t, p)
	must(t, os.WriteFile(p.Tree.Path+"/file", []byte("base"), 0o600))
	sh(t, "set", "snapdir=visible", tree)
	sh(t, "set", "readonly=on", tree)
	b := opened(t, p)
	s, f := grown(t, b, p)
	must(t, os.WriteFile(f.View.Path+"/file", []byte("fork"), 0o600))
	if err := os.WriteFile(s.View.Path+"/file", nil, 0o600); err == nil {
		t.Error("the snapshot can be written to")
	}
	if text, err := os.ReadFile(p.Tree.Path + "/file"); string(text) != "base" {
		t.Errorf("the tree holds %q, %v", text, err)
	}
	gone(t, b)
}

// The error says only that the fork is not found.
func TestAForkDestroyedByHandIsNotFoundAndCanBeRemoved(t *testing.T) {
	p := place(t)
	b := opened(t, p)
	grown(t, b, p)
	sh(t, "destroy", "-r", of(t, p)+"/.snapfs")
	if _, err := b.LookupFork(t.Context(), "f1"); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("the look-up returns %v", err)
	}
	must(t, b.RemoveFork(t.Context(), "f1"))
	_, err := b.Fork(t.Context(), "s1", "f1") // creates .snapfs again
	must(t, err)
	gone(t, b)
}

const userEnv = "SNAPFS_TEST_ZFS_TREE"

// granted lists all grants that a snapshot needs (zfs-allow(8)): to make it with a mark, to hold,
// release and destroy it (which needs mount), and those of a clone.
const granted = "snapshot,userprop,hold,release,destroy,mount,clone,create,mountpoint"

// With all grants a user can make, read and destroy snapshots, but can mount nothing.
func TestAnOrdinaryUserLearnsThatMountingNeedsRoot(t *testing.T) {
	if tree := os.Getenv(userEnv); tree != "" {
		asOrdinaryUser(t, tree)
		return
	}
	p := place(t)
	user := treetest.User(t)
	sh(t, "allow", user.Name, granted, of(t, p))
	must(t, os.Chown(p.Tree.Path, user.UID, user.GID))
	treetest.RunAs(t, user, t.Name(), treetest.WithEnv(userEnv+"="+p.Tree.Path))
}

func asOrdinaryUser(t *testing.T, tree string) {
	_, err := zfs.Open(t.Context(), snapshot.Place{Tree: snapshot.Tree{Path: tree}, Dir: tree + "/state"})
	var e *errs.Error
	if !errors.As(err, &e) || !errors.Is(err, errs.ErrNotSupported) || e.Path != tree || !strings.Contains(err.Error(), "only root can mount") || len(e.Hints) != 2 {
		t.Errorf("%#v", err)
	}
	dataset := sh(t, "list", "-H", "-o", "name", tree)
	taken := dataset + "@taken"
	sh(t, "snapshot", "-o", "snapfs:mark=x", taken)
	sh(t, "hold", "snapfs", taken)
	must(t, os.Mkdir(tree+"/at", 0o700))
	if err := unix.Mount(taken, tree+"/at", "zfs", unix.MS_RDONLY, ""); !errors.Is(err, unix.EPERM) {
		t.Errorf("mounting a snapshot returns %v", err)
	}
	sh(t, "release", "snapfs", taken)
	sh(t, "destroy", "-d", taken)
}
