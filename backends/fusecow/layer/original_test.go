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
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
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

// A program appends at the end that the kernel has from a lookup, and reads no byte beyond it. If the lower file has
// changed since, the merge base is the version that was looked up, and not the present one: otherwise what the user
// added meanwhile would count as removed by the program.
func TestTheOriginalIsTheVersionThatWasLookedUp(t *testing.T) {
	b := newBench(t)
	names := []string{"appended", "read", "cut", "replaced", "renamed", "mode", "same"}
	for _, name := range names {
		b.write(b.lower+"/"+name, "base\n")
	}
	b.up()
	was := map[string]vfs.Stat{}
	for _, name := range names {
		_, err := os.Lstat(b.mount + "/" + name)
		b.must(err)
		was[name], err = vfs.Lstat(unix.AT_FDCWD, b.lower+"/"+name)
		b.must(err)
	}
	b.must(os.Rename(b.mount+"/renamed", b.mount+"/other"))
	for _, name := range names[:5] {
		b.write(b.lower+"/"+name, "base\ntheirs\n")
	}
	b.must(os.Chmod(b.lower+"/mode", 0o755))
	for _, name := range []string{"appended", "other", "mode", "same"} {
		f, err := os.OpenFile(b.mount+"/"+name, os.O_WRONLY|os.O_APPEND, 0)
		b.must(err)
		_, err = f.WriteString("mine\n")
		b.must(errors.Join(err, f.Close()))
	}
	b.has(b.mount+"/read", "base\n")
	b.write(b.mount+"/read.new", "mine\n")
	b.must(os.Rename(b.mount+"/read.new", b.mount+"/read"))
	b.write(b.mount+"/cut", "mine\n")
	b.write(b.mount+"/new", "mine\n")
	b.must(os.Rename(b.mount+"/new", b.mount+"/replaced"))
	b.down()

	all, err := logfile.Originals(b.layers)
	b.must(err)
	if len(all) != len(names) {
		t.Errorf("%d originals of %d", len(all), len(names))
	}
	for _, o := range all {
		version := o.Stat.Ino == was[o.Path].Ino && o.Stat.CTime == was[o.Path].CTime
		if onlySeen := o.Stat.Mode == 0; !version || onlySeen == (o.Path == "same") {
			t.Errorf("%s: the original is %+v, only its version: %v", o.Path, o.Stat, onlySeen)
		}
	}
}
