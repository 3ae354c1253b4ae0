//go:build linux

package snapshottest

import (
	"maps"
	"os"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// keepsOriginals has both a fork and the real tree change files, the fork first.
func keepsOriginals(x *workbench) {
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
		x.write("written", "theirs") // while it is mounted
	})
	x.seal("f1", "s2", snapshot.Idle)
	for _, name := range names {
		x.write(name, "theirs")
	}
	x.in(x.view("f1"), func(dir string) { x.put(dir, "written", "mine again") })
	x.again()
	want := map[string]string{"written": "base written", "cut": "base cut", "dir/replaced": "base dir/replaced"}
	got := map[string]string{}
	for o, err := range as[snapshot.Keeper](x.b).Originals(x.Context(), "s1", "f1") {
		x.must(err)
		text, err := os.ReadFile(o.Content)
		x.must(err)
		got[o.Path] = string(text)
		if o.Size != int64(len(text)) || !o.Mode.IsRegular() || o.CTime.IsZero() {
			x.Errorf("%s is said to have been %+v", o.Path, o)
		}
	}
	if !maps.Equal(got, want) {
		x.Errorf("kept are %q, want %q", got, want)
	}
	for _, err := range as[snapshot.Keeper](x.b).Originals(x.Context(), "s1", "no") {
		x.fails(err, errs.ErrNotFound, "asking for what is not there")
	}
	x.clean()
}
