package walls

import (
	"path/filepath"
	"testing"
)

// TestEveryPlaceIsInTheSource finds the words of each place in the source once, so that a
// change of a word is reported without a build.
func TestEveryPlaceIsInTheSource(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := broken(root); err != nil {
		t.Error(err)
	}
}
