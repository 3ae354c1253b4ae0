//go:build linux

package mounts

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// A directory may be removed between the search for secrets and the making of the layer, and be made again later.
func TestARemovedDirectoryIsHiddenItself(t *testing.T) {
	tree := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(tree, "a/there"), 0o755), os.WriteFile(filepath.Join(tree, "a/file"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	parents, here := parentsOf(tree, []Hidden{
		{Dir: "a/there", Absent: []string{"x"}}, {Dir: "a/gone/deeper", Absent: []string{"y"}}, {Dir: "none", Absent: []string{"z"}}, {Dir: "a/file", Absent: []string{"w"}},
	})
	want := []Hidden{{Dir: "a/there", Absent: []string{"x"}}, {Dir: "a", Absent: []string{"gone"}}, {Dir: ".", Absent: []string{"none"}}}
	if !reflect.DeepEqual(here, want) {
		t.Errorf("hidden are %v, not %v", here, want)
	}
	if len(parents) != 2 || parents[0].path != "a" || parents[1].path != "a/there" {
		t.Errorf("the parents are %v", parents)
	}
}
