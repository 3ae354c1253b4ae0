//go:build linux

package snapshottest

import (
	"os"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// checks is a test that every [snapshot.Checker] must pass: after the test has damaged the data of a fork,
// the method Check finds the damage and repairs it.
func checks(x *workbench) {
	if x.subject.Damage == nil {
		x.Fatal("the backend is a Checker, and the subject has no Damage function")
	}
	x.write("file", "base")
	x.capture("s1")
	x.fork("s1", "f1")
	x.in(x.view("f1"), func(dir string) {
		for _, name := range []string{"kept", "lost"} {
			x.put(dir, name, "mine")
			x.must(syncFile(dir + "/" + name))
		}
		_, err := as[snapshot.Checker](x.b).Check(x.Context(), "f1", true)
		x.fails(err, errs.ErrBusy, "checking a fork that is in use")
	})
	if found := x.check("f1", true); len(found) > 0 {
		x.Errorf("Check of a sound fork returns %+v", found)
	}
	x.subject.Damage(x, x.place, "f1")
	x.reopen()
	for range 2 {
		found := x.check("f1", false)
		if len(found) == 0 {
			x.Error("Check of a damaged fork returns nothing")
		}
		for _, p := range found {
			if p.Mended || p.Where == "" || p.What == "" {
				x.Errorf("Check of a damaged fork returns %+v", p)
			}
		}
	}
	for _, p := range x.check("f1", true) {
		if !p.Mended {
			x.Errorf("Check with repair returns %+v", p)
		}
	}
	if found := x.check("f1", false); len(found) > 0 {
		x.Errorf("Check of a repaired fork returns %+v", found)
	}
	x.has(x.view("f1"), "file", "base", "repaired")
	x.in(x.view("f1"), func(dir string) { x.put(dir, "file", "fork") })
	x.has(x.view("f1"), "file", "fork", "repaired and written to")
	x.has(x.snap("s1"), "file", "base", "the snapshot")
	_, err := as[snapshot.Checker](x.b).Check(x.Context(), "no", false)
	x.fails(err, errs.ErrNotFound, "checking an unknown fork")
	x.clean()
}

func (x *workbench) check(fork snapshot.ForkID, repair bool) []snapshot.Problem {
	x.Helper()
	found, err := as[snapshot.Checker](x.b).Check(x.Context(), fork, repair)
	x.must(err)
	return found
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
