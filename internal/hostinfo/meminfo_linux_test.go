package hostinfo_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/hostinfo"
	"github.com/snapfs/snapfs/internal/treetest"
)

func TestWhatIsNotWrittenYetIsKnown(t *testing.T) {
	const size = 64 << 20
	dir := treetest.Dir(t)
	for began := time.Now(); time.Since(began) < 30*time.Second; { // others write things out meanwhile
		f, err := os.Create(filepath.Join(dir, "file"))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		before := hostinfo.Unwritten()
		if _, err := f.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		after := hostinfo.Unwritten()
		f.Close()
		if after-before > size/2 {
			return
		}
	}
	t.Error("64 MiB that were just written are nowhere")
}
