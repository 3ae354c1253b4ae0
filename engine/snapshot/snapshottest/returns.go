//go:build linux

package snapshottest

import (
	"errors"
	"io"
	"os"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// returns is a test that every [snapshot.Returner] must pass: a fork can be rolled back to its sealed
// snapshots and to its base, both mounted and idle.
func returns(x *workbench) {
	back := func(to snapshot.ID, use snapshot.Use) {
		x.Helper()
		x.must(as[snapshot.Returner](x.b).Return(x.Context(), "f1", to, use))
		f, err := x.b.LookupFork(x.Context(), "f1")
		x.must(err)
		base, err := as[snapshot.Returner](x.b).Base(x.Context(), "f1")
		if x.must(err); f.Base != to || base != to {
			x.Errorf("the fork was rolled back to %s and has the base %s, or %s", to, f.Base, base)
		}
	}
	x.write("file", "base")
	x.write("removed", "base")
	x.capture("s1")
	x.fork("s1", "f1")
	root := x.reach(x.view("f1"))
	dir := vfs.FDPath(root)
	look := func(when string, want map[string]string) {
		x.Helper()
		x.state(x.view("f1"), when+", of another mount", want)
		for name, text := range want {
			got, err := os.ReadFile(dir + "/" + name)
			if text == "" && errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil || string(got) != text {
				x.Errorf("%s, %s holds %q, %v; want %q", when, name, got, err, text)
			}
		}
	}
	first := map[string]string{"file": "base", "removed": "base", "new": "", "later": ""}
	second := map[string]string{"file": "second", "removed": "", "new": "second", "later": ""}
	x.put(dir, "file", "second")
	x.put(dir, "new", "second")
	x.must(os.Remove(dir + "/removed"))
	x.seal("f1", "s2", snapshot.InUse)
	x.put(dir, "file", "third, and longer")
	x.put(dir, "later", "third")
	x.must(os.Remove(dir + "/new"))
	open, err := os.Open(dir + "/later")
	x.must(err)

	back("s2", snapshot.InUse)
	look("back at the second snapshot", second)
	if text, err := io.ReadAll(open); err != nil || string(text) != "third" {
		x.Errorf("an open file that the snapshot does not have holds %q, %v", text, err)
	}
	x.must(open.Close())
	x.put(dir, "new", "lost")
	back("s1", snapshot.InUse)
	look("back at the base", first)
	back("s2", snapshot.InUse)
	look("again at the second snapshot", second)
	x.must(os.Remove(dir + "/file"))
	x.must(root.Close())
	x.reopen()
	x.state(x.view("f1"), "reopened", map[string]string{"file": "", "new": "second"})
	back("s2", snapshot.Idle)
	x.state(x.view("f1"), "back at the second snapshot, idle", second)
	back("s1", snapshot.Idle)
	x.state(x.view("f1"), "back at the base, idle", first)
	x.state(x.snap("s2"), "the second snapshot", second)
	x.fails(as[snapshot.Returner](x.b).Return(x.Context(), "f1", "no", snapshot.Idle), errs.ErrNotFound, "returning to an unknown snapshot")
	x.fails(as[snapshot.Returner](x.b).Return(x.Context(), "no", "s1", snapshot.Idle), errs.ErrNotFound, "returning an unknown fork")
	x.clean()
}
