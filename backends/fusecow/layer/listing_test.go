//go:build linux

package layer_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestListingIsWholeWithACachedPart: the kernel may have cached the first part of a listing and read only the
// rest, while the directory changes.
func TestListingIsWholeWithACachedPart(t *testing.T) {
	const files = 500
	base := func(i int) string { return fmt.Sprintf("file-with-a-name-%03d", i) }
	for what, meanwhile := range map[string]func(path string) error{
		"nothing":           func(string) error { return nil },
		"it is removed":     os.Remove,
		"it is changed":     func(path string) error { return os.Chmod(path, 0o600) },
		"another is beside": func(path string) error { return os.WriteFile(path+"-too", nil, 0o644) },
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			b.must(os.Mkdir(b.lower+"/dir", 0o755))
			for i := range files / 2 {
				b.must(os.WriteFile(b.lower+"/dir/"+base(i), nil, 0o644))
			}
			b.up()
			for i := files / 2; i < files; i++ {
				b.must(os.WriteFile(b.mount+"/dir/"+base(i), nil, 0o644))
			}
			b.must(os.Chmod(b.mount+"/dir/"+base(0), 0o640)) // the kernel caches the listing before this change
			for range 2 {                                    // the kernel caches a listing from the second read on
				_, err := os.ReadDir(b.mount + "/dir")
				b.must(err)
			}
			seen := treetest.ListInParts(t, b.mount+"/dir", func(seen map[string]bool) {
				for name := range seen {
					b.must(meanwhile(b.mount + "/dir/" + name))
				}
			})
			missing := 0
			for i := range files {
				if !seen[base(i)] {
					missing++
				}
			}
			if missing > 0 {
				t.Errorf("%d of %d names are not there", missing, files)
			}
			b.down()
		})
	}
}
