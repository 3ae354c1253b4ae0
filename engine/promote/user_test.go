package promote_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// closed is a scene in which the user has removed their own permissions.
func closed() (before, after treetest.Script) {
	mode := func(path string, bits uint32) treetest.Step {
		s := do(treetest.Chmod, path, "")
		s.Mode = bits
		return s
	}
	before = treetest.Script{
		do(treetest.Mkdir, "ro", ""), file("ro/a", 1, 10), do(treetest.Mkdir, "ro/sub", ""), file("ro/sub/b", 2, 10), mode("ro/sub", 0o555),
		do(treetest.Mkdir, "goes", ""), file("goes/x", 3, 10), mode("goes", 0o555), mode("ro", 0o555),
	}
	after = treetest.Script{
		mode("ro", 0o755), do(treetest.Unlink, "ro/a", ""), file("ro/a", 4, 10), mode("ro/sub", 0o755), file("ro/sub/new", 5, 10), mode("ro/sub", 0o555),
		mode("goes", 0o755), do(treetest.RemoveRF, "goes", ""), do(treetest.Mkdir, "comes", ""), file("comes/y", 6, 10), mode("comes", 0o500), mode("ro", 0o555),
	}
	return before, after
}

func TestOrdinaryUserAppliesToTheirOwnFiles(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	for name, scene := range map[string]func() (treetest.Script, treetest.Script){"open": scene, "closed": closed} {
		t.Run(name, func(t *testing.T) {
			before, after := scene()
			top := t.TempDir()
			w := newWorld(t, top, before, after)
			t.Cleanup(func() {
				filepath.WalkDir(top, func(p string, _ os.DirEntry, _ error) error { os.Chmod(p, 0o700); return nil }) //nolint:errcheck //nolint:errcheck // to be removed
			})
			old, changes := manifest(t, w), w.changes(t, w.frozen())
			ctx := treetest.WithFaults(t.Context(), func(step string) error {
				if step == "commit" {
					return errRehearsed
				}
				return nil
			})
			if _, err := promote.Apply(ctx, w.target(), w.source(), changes, options(w.frozen())); !errors.Is(err, errRehearsed) {
				t.Fatal(err)
			}
			if l := treetest.Lines(old, manifest(t, w)); len(l) > 0 {
				t.Fatalf("taken back, but %q", l)
			}
			w.clean(t)
			_, err := w.apply(t, w.frozen())
			must(t, err)
			w.arrived(t)
		})
	}
}

// laidOut is the tree that root creates in this user's home.
func laidOut(t *testing.T) *world {
	t.Helper()
	w := &world{top: os.Getenv("HOME")}
	if _, err := os.Stat(filepath.Join(w.top, "base")); err != nil {
		treetest.NeedRoot(t) // creates files of other users
	}
	for name, f := range map[string]**os.File{"real": &w.real, "base": &w.base, "sandbox": &w.sandbox} {
		*f = treetest.Open(t, filepath.Join(w.top, name))
	}
	return w
}

func TestOrdinaryUserIsRefusedFilesOfOthers(t *testing.T) {
	if os.Geteuid() == 0 {
		a := treetest.User(t)
		w := newWorld(t, a.Home, treetest.Script{file("a", 1, 10), file("theirs", 2, 10)},
			treetest.Script{do(treetest.Unlink, "a", ""), file("a", 3, 10), file("foreign", 4, 10), do(treetest.Utimes, "theirs", "")})
		for _, tree := range []*os.File{w.real, w.base, w.sandbox} {
			for _, p := range []string{"", "a", "theirs"} {
				must(t, os.Chown(filepath.Join(tree.Name(), p), a.UID, a.GID))
			}
		}
		treetest.RunAs(t, a, t.Name())
		return
	}
	w := laidOut(t)
	old, b := manifest(t, w), promote.Base{Frozen: true, Root: w.base}
	_, err := w.apply(t, b)
	if !errors.Is(err, errs.ErrDenied) || !strings.Contains(err.Error(), "foreign: only root") {
		t.Errorf("got %v", err)
	}
	if l := treetest.Lines(old, manifest(t, w)); len(l) > 0 {
		t.Errorf("touched %q", l)
	}
}

// In a directory of another user, such as /tmp, a user's changes are applied and reverted,
// except for the time of that directory, which the user may not set.
func TestOrdinaryUserAppliesInADirectoryOfAnother(t *testing.T) {
	if os.Geteuid() == 0 {
		a := treetest.User(t)
		w := newWorld(t, a.Home, treetest.Script{do(treetest.Mkdir, "sub", ""), file("sub/a", 1, 10)},
			treetest.Script{do(treetest.Unlink, "sub/a", ""), file("sub/b", 3, 10)})
		for _, tree := range []*os.File{w.base, w.sandbox, w.real} {
			for _, p := range []string{"", "sub"} {
				must(t, os.Chmod(filepath.Join(tree.Name(), p), 0o777|os.ModeSticky))
			}
			for _, p := range []string{"sub/a", "sub/b"} {
				if err := os.Chown(filepath.Join(tree.Name(), p), a.UID, a.GID); !errors.Is(err, fs.ErrNotExist) {
					must(t, err)
				}
			}
		}
		must(t, errors.Join(os.Mkdir(w.state(), 0o700), os.Chown(w.state(), a.UID, a.GID)))
		must(t, errors.Join(os.Chown(a.Home, 0, 0), os.Chmod(a.Home, 0o755))) // so that the stage is in the target
		treetest.RunAs(t, a, t.Name())
		return
	}
	w := laidOut(t)
	names := func() (all []string) {
		entries, err := os.ReadDir(w.real.Name() + "/sub")
		must(t, err)
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return all
	}
	b := promote.Base{Frozen: true, Root: w.base}
	ctx := treetest.WithFaults(t.Context(), func(step string) error {
		if step == "commit" {
			return errRehearsed
		}
		return nil
	})
	_, err := promote.Apply(ctx, w.target(), w.source(), w.changes(t, b), options(b))
	if !errors.Is(err, errRehearsed) || errors.Is(err, unix.EPERM) || !slices.Equal(names(), []string{"a"}) {
		t.Fatalf("taking back: %v; there is %q", err, names())
	}
	w.clean(t)
	if _, err := w.apply(t, b); err != nil || !slices.Equal(names(), []string{"b"}) {
		t.Fatalf("applying: %v; there is %q", err, names())
	}
	w.clean(t)
}
