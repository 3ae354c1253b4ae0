//go:build linux

package snapshottest

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// metadataKeepsContent is a test that every backend with frozen bases must pass: a file of which a fork
// changed only metadata keeps its content after the real file is deleted.
func metadataKeepsContent(x *workbench) {
	files := []string{"chmod", "times", "link", "rename"}
	for _, name := range files {
		x.write("dir/"+name, "content of "+name)
	}
	x.capture("s1")
	f := x.fork("s1", "f1")
	x.in(f.View, func(dir string) {
		at := func(name string) string { return filepath.Join(dir, "dir", name) }
		x.must(errors.Join(
			os.Chmod(at("chmod"), 0o600), os.Chtimes(at("times"), time.Unix(1, 0), time.Unix(1, 0)),
			os.Link(at("link"), at("link2")), os.Rename(at("rename"), at("rename2")),
		))
	})
	for _, name := range files {
		x.must(os.Remove(filepath.Join(x.place.Tree.Path, "dir", name)))
	}
	for name, want := range map[string]string{"chmod": "chmod", "times": "times", "link2": "link", "rename2": "rename"} {
		x.has(f.View, "dir/"+name, "content of "+want, "after the real file went")
	}
	x.seal("f1", "s2", snapshot.Idle)
	x.has(x.snap("s2"), "dir/chmod", "content of chmod", "in a snapshot, after the real file went")
	x.clean()
}
