package hostfs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate"
)

// No path that is masked lies in a directory that an ordinary user's sandbox shows as it is on the host, unless that
// directory has very many entries: then an overlay between keeps the mask.
func TestAMaskedPathLiesInNoDirectoryOfTheHost(t *testing.T) {
	if Privileged() {
		treetest.RunAs(t, treetest.User(t), t.Name())
		return
	}
	dir := realDir(t)
	top, file, large := filepath.Join(dir, "top"), filepath.Join(dir, "file"), filepath.Join(dir, "large")
	for _, f := range []string{top + "/key", top + "/a/b/key", top + "/a/m/x", top + "/c/x", large + "/a/b/key", large + "/key", file} {
		mustWrite(t, f)
	}
	for i := range maxSplit {
		if err := os.Mkdir(fmt.Sprintf("%s/%d", large, i), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{top + "/empty", top + "/tree"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	env := &Environment{mounts: []mount.Point{{Path: "/", Type: "ext4"}, {Path: top + "/a/m", Type: "ext4"}, {Path: large + "/1", Type: "ext4"}}}
	as := func(path string) isolate.Mount { return isolate.Mount{Target: path, Source: path, ReadOnly: true} }
	with := func(m isolate.Mount) isolate.Mount {
		m.NoSockets = true
		return m
	}
	start := func() []isolate.Mount {
		return []isolate.Mount{
			{Target: "/", Overlay: &isolate.Overlay{}}, as(top), with(as(top + "/a/b")), {Target: top + "/tree", Source: "/copy"}, as(file), as(large),
		}
	}
	for name, c := range map[string]struct {
		hide, asked []string
		// changed are the mounts, by target, that differ from those at the start.
		changed map[string]string
	}{
		"nothing":      {},
		"in a copy":    {hide: []string{top + "/tree/x", "/key"}},
		"an empty one": {hide: []string{top + "/empty"}},
		"asked": {hide: []string{top + "/empty"}, asked: []string{top + "/empty"}, changed: map[string]string{
			top: "skeleton", top + "/a": "bound", top + "/c": "bound",
		}},
		"deep": {hide: []string{top + "/a/b/key"}, changed: map[string]string{
			top: "skeleton", top + "/a": "skeleton", top + "/a/m": "bound", top + "/c": "bound", top + "/empty": "bound",
		}},
		"shallow":     {hide: []string{top + "/c/x"}, changed: map[string]string{top: "skeleton", top + "/a": "bound", top + "/c": "overlay", top + "/empty": "bound"}},
		"mounted":     {hide: []string{file}, changed: map[string]string{file: "none"}},
		"among many":  {hide: []string{large + "/a/b/key"}, changed: map[string]string{large + "/a": "overlay"}},
		"one of many": {hide: []string{large + "/key"}},
	} {
		kinds := func(mounts []isolate.Mount) map[string]string {
			all := map[string]string{}
			for _, m := range mounts {
				switch {
				case m.Skeleton != "":
					all[m.Target] = "skeleton"
				case m.NoSockets:
					all[m.Target] = "overlay"
				case bound(m):
					all[m.Target] = "bound"
				default:
					all[m.Target] = "copy"
				}
			}
			return all
		}
		want := kinds(start())
		for target, kind := range c.changed {
			if want[target] = kind; kind == "none" {
				delete(want, target)
			}
		}
		mounts, notes := keepMasks(start(), c.hide, c.asked, env)
		if len(notes) > 0 != (name == "one of many") {
			t.Errorf("%s: %q", name, notes)
		}
		if got := kinds(mounts); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if !slices.IsSortedFunc(mounts, func(a, b isolate.Mount) int { return strings.Compare(a.Target, b.Target) }) {
			t.Errorf("%s: the mounts are not in order", name)
		}
	}
}
