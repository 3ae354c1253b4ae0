//go:build linux

package snapshottest

import (
	"errors"
	"os"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// noticesReads is a test that every [snapshot.ServerMonitor] must pass: it changes files of the real tree and
// reads some of them through the fork. The backend must report the changed files that were read, while the
// fork is mounted, and no others. A frozen base shows no such file, so nothing may be reported.
func noticesReads(x *workbench) {
	for _, name := range []string{"changed", "unread", "still", "before"} {
		x.write(name, "base")
	}
	time.Sleep(2 * racy)
	x.capture("s1")
	v := x.fork("s1", "f1").View
	noticed := func(when string, want ...string) {
		x.Helper()
		got, err := as[snapshot.ServerMonitor](x.b).Noticed(x.Context(), "f1")
		x.must(err)
		if !slices.Equal(got, want) {
			x.Errorf("%s: reported are %q, want %q", when, got, want)
		}
	}
	noticed("not mounted")
	root := x.reach(v)
	read := func(names ...string) {
		x.Helper()
		for _, name := range names {
			_, err := os.ReadFile(vfs.FDPath(root) + "/" + name)
			x.must(err)
		}
	}
	read("still", "before")
	_, err := os.ReadDir(vfs.FDPath(root)) // the kernel looks all of them up before they change
	x.must(err)
	_, err = os.Stat(vfs.FDPath(root) + "/changed")
	x.must(err)
	time.Sleep(2 * racy)
	for _, name := range []string{"changed", "unread", "before", "new"} {
		x.write(name, "real")
	}
	noticed("changed, and not yet read")
	if x.b.Facts().Frozen {
		read("changed", "still", "changed")
		noticed("read through a frozen base")
	} else {
		read("changed", "new", "still", "changed")
		noticed("changed and read", "changed", "new")
	}
	x.must(root.Close())
	if _, err := as[snapshot.ServerMonitor](x.b).Noticed(x.Context(), "no"); !errors.Is(err, errs.ErrNotFound) {
		x.Errorf("an unknown fork: %v", err)
	}
	x.clean()
}
