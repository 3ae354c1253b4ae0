package pathlist_test

import (
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/pathlist"
)

func TestPathsBelowADirectoryAreFound(t *testing.T) {
	names := []string{"*/key", ".a", ".a.b", ".a/x", ".a/y/z", ".ab/c"}
	for first, want := range map[string]string{".a": "x y/z true", ".ab": "c false", ".b": " false", "*": "key false", ".a.b": " true"} {
		rest, is := pathlist.Below(names, first)
		if got := strings.Join(rest, " ") + map[bool]string{true: " true", false: " false"}[is]; got != want {
			t.Errorf("%s: %q, want %q", first, got, want)
		}
	}
}
