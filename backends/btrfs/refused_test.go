//go:build linux

package btrfs

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

const userTreeEnv = "SNAPFS_TEST_BTRFS_TREE"

// asOwner runs the test as a user who owns the top directory of a filesystem without
// user_subvol_rm_allowed, and returns that directory there.
func asOwner(t *testing.T) (top string, inside bool) {
	t.Helper()
	if top = os.Getenv(userTreeEnv); top != "" {
		return top, true
	}
	treetest.NeedRoot(t)
	top = treetest.Btrfs(t)
	subvolume(t, top+"/roots")
	user := treetest.User(t)
	if err := os.Chown(top, user.UID, user.GID); err != nil {
		t.Fatal(err)
	}
	treetest.RunAs(t, user, t.Name(), treetest.WithEnv(userTreeEnv+"="+top))
	return "", false
}

func TestAUserWithoutSubvolumeRemovalDeletesFileByFile(t *testing.T) {
	top, inside := asOwner(t)
	if !inside {
		return
	}
	tree := snapshot.Tree{Path: subvolume(t, top+"/work")}
	if err := os.MkdirAll(tree.Path+"/locked/deep", 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, tree.Path+"/locked/deep/file", "x")
	if err := os.Chmod(tree.Path+"/locked", 0); err != nil {
		t.Fatal(err)
	}
	b := opened(t, tree)
	_, f := clone(t, b, tree, "1")
	subvolume(t, f.View.Path+"/made-inside")
	if err := b.RemoveFork(t.Context(), "f1"); err != nil {
		t.Error(err)
	}
	if err := b.Remove(t.Context(), "s1"); err != nil {
		t.Error(err)
	}
	wantEmptyTrash(t, b)
}

func TestASubvolumeOfAnotherUserIsRefusedWithAHint(t *testing.T) {
	top, inside := asOwner(t)
	if !inside {
		return
	}
	_, err := Open(t.Context(), snapshot.Place{Tree: snapshot.Tree{Path: top + "/roots"}, Dir: "/state"})
	wantRefusal(t, err, errs.ErrNotSupported)
	for _, err := range openedTouched(t, top) {
		if !errors.Is(err, errs.ErrNotSupported) {
			t.Errorf("changes without root: %v", err)
		}
	}
}

// openedTouched lists, as a user, the changes of a fork of top.
func openedTouched(t *testing.T, top string) (failures []error) {
	t.Helper()
	tree := snapshot.Tree{Path: subvolume(t, top+"/mine")}
	b := opened(t, tree)
	clone(t, b, tree, "1")
	for _, err := range b.ListChanges(t.Context(), "s1", "f1") {
		failures = append(failures, err)
	}
	if len(failures) == 0 {
		t.Error("listing changes as a user returns nothing")
	}
	return failures
}

func wantRefusal(t *testing.T, err, kind error) {
	t.Helper()
	var e *errs.Error
	if !errors.As(err, &e) || !errors.Is(err, kind) || len(e.Hints) == 0 || e.Path == "" {
		t.Errorf("err = %#v", err)
	}
}

func TestAReadOnlyFilesystemIsReported(t *testing.T) {
	b, tree := fixture(t)
	clone(t, b, tree, "1")
	if err := unix.Mount("", b.top, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	_, err := b.Capture(t.Context(), tree, "s2")
	if !errors.Is(err, errs.ErrReadOnly) {
		// Nothing has changed, so Capture may return the last snapshot.
		if s, again := b.Lookup(t.Context(), "s1"); err != nil || again != nil || s.ID != "s1" {
			t.Errorf("capturing: %v", err)
		}
	}
	_, err = b.Fork(t.Context(), "s1", "f2")
	var e *errs.Error
	if !errors.As(err, &e) || !errors.Is(err, errs.ErrReadOnly) || len(e.Hints) == 0 {
		t.Errorf("forking: %#v", err)
	}
}

func TestForksOfADeletedTreeStayReachable(t *testing.T) {
	b, tree := fixture(t)
	clone(t, b, tree, "1")
	if err := os.RemoveAll(tree.Path); err != nil {
		t.Fatal(err)
	}
	again := opened(t, tree)
	if f, err := again.LookupFork(t.Context(), "f1"); err != nil {
		t.Error(err)
	} else {
		wantFile(t, f.View.Path+"/file", "old")
	}
	if _, err := again.Capture(t.Context(), tree, "s2"); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("capturing a deleted tree: %v", err)
	}
}
