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

// notices reads files through a fork, some of which the real tree has changed since it was taken: these
// are told while it is mounted, and neither those that were not read nor those that have not changed. Of a
// frozen base none is told: it shows none.
func notices(x *workbench) {
	for _, name := range []string{"changed", "unread", "still", "before"} {
		x.write(name, "base")
	}
	time.Sleep(2 * racy)
	x.capture("s1")
	v := x.fork("s1", "f1").View
	told := func(when string, want ...string) {
		x.Helper()
		got, err := as[snapshot.Noticer](x.b).Noticed(x.Context(), "f1")
		x.must(err)
		if !slices.Equal(got, want) {
			x.Errorf("%s: told is %q, want %q", when, got, want)
		}
	}
	told("not mounted")
	root := x.reach(v)
	read := func(names ...string) {
		x.Helper()
		for _, name := range names {
			_, err := os.ReadFile(vfs.FDPath(root) + "/" + name)
			x.must(err)
		}
	}
	read("still", "before")
	_, err := os.ReadDir(vfs.FDPath(root)) // the kernel knows of all of them before they change
	x.must(err)
	_, err = os.Stat(vfs.FDPath(root) + "/changed")
	x.must(err)
	time.Sleep(2 * racy)
	for _, name := range []string{"changed", "unread", "before", "new"} {
		x.write(name, "real")
	}
	told("before any is read")
	if x.b.Facts().Frozen {
		read("changed", "still", "changed")
		told("read of a frozen base")
	} else {
		read("changed", "new", "still", "changed")
		told("read", "changed", "new")
	}
	x.must(root.Close())
	if _, err := as[snapshot.Noticer](x.b).Noticed(x.Context(), "no"); !errors.Is(err, errs.ErrNotFound) {
		x.Errorf("of a fork that is not there: %v", err)
	}
	x.clean()
}
