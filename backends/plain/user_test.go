package plain_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/backends/plain"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

func TestAnUnreadableFileIsNamedInTheError(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	b, place := open(t)
	for _, secret := range []string{"dir/secret", "closed"} {
		path := filepath.Join(place.Tree.Path, secret)
		write(t, path, "")
		must(t, os.Chmod(path, 0))
		_, err := b.Capture(t.Context(), place.Tree, "s1")
		var e *errs.Error
		if !errors.Is(err, errs.ErrDenied) || !errors.As(err, &e) || e.Path != path {
			t.Errorf("Capture returns %v", err)
		}
		must(t, os.Remove(path))
	}
	if ids, _, err := b.List(t.Context()); err != nil || len(ids) > 0 {
		t.Errorf("the failed capture left %v, %v", ids, err)
	}
}

const foreignEnv = "SNAPFS_TEST_FOREIGN"

// A user's copy of root's set-id program belongs to the user, and must not run as that user for
// everybody.
func TestACopyOfAnothersFileHasNoSetIDBits(t *testing.T) {
	tree := os.Getenv(foreignEnv)
	if tree == "" {
		treetest.NeedRoot(t)
		tree = treetest.Dir(t)
		write(t, tree+"/program", "x")
		must(t, os.Chmod(tree+"/program", 0o055|os.ModeSetuid|os.ModeSetgid))
		treetest.RunAs(t, treetest.User(t), t.Name(), treetest.WithEnv(foreignEnv+"="+tree))
		return
	}
	b, err := plain.Open(t.Context(), snapshot.Place{Dir: filepath.Join(treetest.Dir(t), "state")})
	must(t, err)
	_, err = b.Capture(t.Context(), snapshot.Tree{Path: tree}, "s1")
	must(t, err)
	f, err := b.Fork(t.Context(), "s1", "f1")
	must(t, err)
	st, err := vfs.Lstat(unix.AT_FDCWD, f.View.Path+"/program")
	must(t, err)
	if int(st.UID) != os.Getuid() || st.FileMode() != 0o455 {
		t.Errorf("the copy is %v of %d", st.FileMode(), st.UID)
	}
}

// A default ACL of the state directory is no part of a copy.
func TestACopyInheritsNoACL(t *testing.T) {
	b, place := open(t)
	write(t, filepath.Join(place.Tree.Path, "dir/file"), "")
	must(t, os.Mkdir(place.Dir, 0o700))
	list := []byte{
		2, 0, 0, 0, // version; then tag, permissions, id
		1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 7, 0, 1, 0, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255,
		16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 5, 0, 255, 255, 255, 255,
	}
	must(t, vfs.SetXattr(unix.AT_FDCWD, place.Dir, "system.posix_acl_default", list, 0))
	s, err := b.Capture(t.Context(), place.Tree, "s1")
	must(t, err)
	treetest.Compare(t, treetest.Open(t, place.Tree.Path), treetest.Open(t, s.View.Path), treetest.Options{})
}
