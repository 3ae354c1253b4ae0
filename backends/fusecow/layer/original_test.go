//go:build linux

package layer_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/internal/treetest"
)

// TestFirstChangeSavesTheOriginal, whatever the kind of change, and whatever happens to the lower later.
func TestFirstChangeSavesTheOriginal(t *testing.T) {
	b := newBench(t)
	large := strings.Repeat("x", logfile.MaxOriginal+1)
	lower := map[string]string{"written": "1", "cut": "2", "dir/replaced": "3", "twice": "4", "large": large, "chmod": "5", "read": "6"}
	b.must(os.Mkdir(b.lower+"/dir", 0o755))
	for name, text := range lower {
		b.write(b.lower+"/"+name, text)
	}
	b.up()
	change := func(name, text string) {
		t.Helper()
		f, err := os.OpenFile(b.mount+"/"+name, os.O_WRONLY, 0)
		b.must(err)
		_, err = f.WriteString(text)
		b.must(err)
		b.must(f.Sync())
		b.must(f.Close())
	}
	change("written", "mine")
	change("twice", "mine")
	change("large", "mine")
	b.write(b.mount+"/cut", "mine")
	b.write(b.mount+"/next", "mine")
	b.must(os.Rename(b.mount+"/next", b.mount+"/dir/replaced"))
	b.must(os.Chmod(b.mount+"/chmod", 0o600))
	b.has(b.mount+"/read", "6")
	b.freeze()
	for name := range lower {
		b.write(b.lower+"/"+name, "theirs")
	}
	change("twice", "mine again")
	b.again(true)
	b.down()

	all, err := logfile.Originals(b.layers)
	b.must(err)
	got := map[string]string{}
	for _, o := range all {
		if got[o.Path] = "-"; o.File != "" {
			text, err := os.ReadFile(o.File)
			b.must(err)
			got[o.Path] = string(text)
		}
		if size := int64(len(lower[o.Path])); o.Stat.Size != size {
			t.Errorf("%s is said to have been %d bytes long", o.Path, o.Stat.Size)
		}
	}
	want := map[string]string{"written": "1", "cut": "2", "dir/replaced": "3", "twice": "4", "large": "-"}
	if !maps.Equal(got, want) {
		t.Errorf("kept are %q", got)
	}
}

// TestOriginalsWithAReusedNumberKeepTheirContent: the lower reuses the number of a removed file.
func TestOriginalsWithAReusedNumberKeepTheirContent(t *testing.T) {
	b := newBench(t)
	b.lower = treetest.Ext4(t, 64<<20)
	b.write(b.lower+"/f", "content of f")
	b.up()
	number := b.ino(b.lower + "/f")
	b.write(b.mount+"/f.new", "mine")
	b.must(os.Rename(b.mount+"/f.new", b.mount+"/f")) // saves f
	b.sync()
	b.must(os.Remove(b.lower + "/f"))
	b.write(b.lower+"/g", "content of g")
	for i, within := 0, time.Now().Add(time.Minute); b.ino(b.lower+"/g") != number; i++ { // ext4 waits some seconds before it does
		if time.Now().After(within) {
			t.Fatalf("the number %d is not given again", number)
		}
		b.must(os.Rename(b.lower+"/g", fmt.Sprintf("%s/other%d", b.lower, i)))
		time.Sleep(50 * time.Millisecond)
		b.write(b.lower+"/g", "content of g")
	}
	f, err := os.OpenFile(b.mount+"/g", os.O_WRONLY|os.O_APPEND, 0)
	b.must(err)
	_, err = f.WriteString("!")
	b.must(errors.Join(err, f.Close()))
	b.down()
	all, err := logfile.Originals(b.layers)
	b.must(err)
	for _, o := range all {
		b.has(o.File, "content of "+o.Path)
	}
	if len(all) != 2 {
		t.Errorf("%d originals are kept: %v", len(all), all)
	}
}
