//go:build linux

package snapshottest

import (
	"maps"
	"os"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// originalsStay is a test that every [snapshot.OriginalStore] must pass: after files were changed in a fork
// first and then in the real tree, the originals that the backend yields equal the base.
func originalsStay(x *workbench) {
	names := []string{"written", "cut", "dir/replaced", "read"}
	for _, name := range names {
		x.write(name, "base "+name)
	}
	x.capture("s1")
	x.fork("s1", "f1")
	x.in(x.view("f1"), func(dir string) {
		f, err := os.OpenFile(dir+"/written", os.O_WRONLY, 0)
		x.must(err)
		_, err = f.WriteString("mine")
		x.must(err)
		x.must(f.Close())
		x.put(dir, "cut", "mine")
		x.put(dir, "next", "mine")
		x.must(os.Rename(dir+"/next", dir+"/dir/replaced"))
		x.write("written", "theirs") // while the fork is mounted
	})
	x.seal("f1", "s2", snapshot.Idle)
	for _, name := range names {
		x.write(name, "theirs")
	}
	x.in(x.view("f1"), func(dir string) { x.put(dir, "written", "mine again") })
	x.reopen()
	want := map[string]string{"written": "base written", "cut": "base cut", "dir/replaced": "base dir/replaced"}
	got := map[string]string{}
	for o, err := range as[snapshot.OriginalStore](x.b).Originals(x.Context(), "s1", "f1") {
		x.must(err)
		text, err := os.ReadFile(o.Content)
		x.must(err)
		got[o.Path] = string(text)
		if o.Size != int64(len(text)) || !o.Mode.IsRegular() || o.CTime.IsZero() {
			x.Errorf("the original of %s is described as %+v", o.Path, o)
		}
	}
	if !maps.Equal(got, want) {
		x.Errorf("the originals are %q, want %q", got, want)
	}
	for _, err := range as[snapshot.OriginalStore](x.b).Originals(x.Context(), "s1", "no") {
		x.fails(err, errs.ErrNotFound, "listing the originals of an unknown fork")
	}
	x.clean()
}
