//go:build linux

package treetest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/vfs"
)

// Compare fails the test if the trees want and got differ in any property that o does not exclude, and logs
// the first differences. It reads both trees completely.
func Compare(t testing.TB, want, got *os.File, o Options) {
	t.Helper()
	list, err := Differences(want, got, o)
	if err != nil {
		t.Error(err)
		return
	}
	const shown = 20
	for _, d := range list[:min(len(list), shown)] {
		t.Error(d)
	}
	if len(list) > shown {
		t.Errorf("... and %d differences more", len(list)-shown)
	}
}

// Differences compares the trees want and got, and returns a line of text for each path that differs in a
// property that o does not exclude.
func Differences(want, got *os.File, o Options) ([]string, error) {
	var a, b strings.Builder
	if err := WriteManifest(&a, want, o); err != nil {
		return nil, fmt.Errorf("the tree wanted: %w", err)
	}
	if err := WriteManifest(&b, got, o); err != nil {
		return nil, fmt.Errorf("the tree got: %w", err)
	}
	return Lines(a.String(), b.String()), nil
}

// Lines compares two descriptions of trees (see [Manifest]) and returns a line for each path that differs.
func Lines(want, got string) []string {
	if want == got {
		return nil
	}
	has := map[string]string{}
	for line := range strings.Lines(got) {
		path, node, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		has[path] = node
	}
	var list []string
	for line := range strings.Lines(want) {
		path, node, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		other, ok := has[path]
		delete(has, path)
		switch {
		case !ok:
			list = append(list, "missing: "+path+" "+node)
		case other != node:
			list = append(list, "differs: "+path+"\n\twant "+node+"\n\tgot  "+other)
		}
	}
	for line := range strings.Lines(got) {
		path, node, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if _, ok := has[path]; ok {
			list = append(list, "not wanted: "+path+" "+node)
		}
	}
	return list
}

// Holes fails the test if one of the files paths occupies over 64 KiB more disk space in the tree got than in
// the tree want: then a copy has lost its holes.
func Holes(t testing.TB, want, got *os.File, paths ...string) {
	t.Helper()
	for _, path := range paths {
		var blocks [2]int64
		for i, root := range []*os.File{want, got} {
			a, err := locate(root, path)
			if err != nil {
				t.Fatal(err)
			}
			st, err := vfs.Lstat(a.fd(), a.name)
			a.dir.Close()
			if err != nil {
				t.Fatal(err)
			}
			blocks[i] = st.Blocks * 512
		}
		if blocks[1] > blocks[0]+64<<10 {
			t.Errorf("%q takes %d bytes on disk, want about %d", path, blocks[1], blocks[0])
		}
	}
}
