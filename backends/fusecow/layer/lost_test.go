//go:build linux

package layer_test

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// TestNewFilesSurviveLossOfTheirLowerDirectory: people remove build directories while a sandbox works there.
func TestNewFilesSurviveLossOfTheirLowerDirectory(t *testing.T) {
	for what, instead := range map[string]func(b *bench){
		"nothing is there": func(*bench) {},
		"a file is there":  func(b *bench) { b.write(b.lower+"/build", "theirs") },
		"a link is there":  func(b *bench) { b.must(os.Symlink("/", b.lower+"/build")) },
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			b.must(os.MkdirAll(b.lower+"/build/sub", 0o755))
			b.write(b.lower+"/build/a", "a")
			b.up()
			b.write(b.mount+"/build/mine", "mine")
			_, err := os.ReadDir(b.mount + "/build/sub")
			b.must(err)
			b.must(os.RemoveAll(b.lower + "/build"))
			instead(b)
			for _, crash := range []bool{false, true, false} {
				b.again(crash)
				if got := b.list(b.mount + "/build"); got != "mine" {
					t.Errorf("it lists %q", got)
				}
				b.has(b.mount+"/build/mine", "mine")
				if _, err := os.Stat(b.mount + "/build/absent"); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("a name that is not there: %v", err)
				}
				b.write(b.mount+"/build/new", "new")
				b.must(os.Remove(b.mount + "/build/new"))
				b.at(func(root *os.File) { b.must(root.Sync()) })
			}
			b.must(os.RemoveAll(b.mount + "/build"))
			b.down()
		})
	}
}

// TestLowerDirectoryRemovedWhileMountedShowsTheLayers, whatever of it was open.
func TestLowerDirectoryRemovedWhileMountedShowsTheLayers(t *testing.T) {
	b := newBench(t)
	b.must(os.MkdirAll(b.lower+"/build/sub", 0o755))
	b.up()
	b.write(b.mount+"/build/mine", "mine")
	b.must(os.RemoveAll(b.lower + "/build"))
	if got := b.list(b.mount + "/build"); got != "mine" {
		t.Errorf("it lists %q", got)
	}
	if _, err := os.Stat(b.mount + "/build/absent"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a name that is not there: %v", err)
	}
	b.write(b.mount+"/build/new", "new")
	b.has(b.mount+"/build/new", "new")
	b.must(os.RemoveAll(b.mount + "/build"))
	b.down()
}

// TestDetachSkipsADirectoryMissingInTheLower, which may come back.
func TestDetachSkipsADirectoryMissingInTheLower(t *testing.T) {
	b := newBench(t)
	b.must(os.MkdirAll(b.lower+"/build", 0o755))
	b.write(b.lower+"/build/a", "a")
	b.up()
	b.write(b.mount+"/build/mine", "mine")
	b.must(os.Rename(b.mount+"/build", b.mount+"/moved"))
	b.down()
	b.must(os.Rename(b.lower+"/build", b.lower+"/away"))
	f, err := layer.Open(b.options())
	b.must(err)
	b.must(f.Detach(t.Context(), map[string]bool{"build": true}))
	b.must(f.Close())
	b.must(os.Rename(b.lower+"/away", b.lower+"/build"))
	b.up()
	if got := b.list(b.mount + "/moved"); got != "a mine" {
		t.Errorf("it lists %q", got)
	}
	b.down()
}

// TestRenamesMakeNoCycle when a directory is renamed into one of its descendants, which is gone from the lower.
func TestRenamesMakeNoCycle(t *testing.T) {
	b := newBench(t)
	b.must(os.MkdirAll(b.lower+"/x/y", 0o755))
	b.up()
	b.write(b.mount+"/x/y/mine", "mine")
	b.must(os.RemoveAll(b.lower + "/x/y"))
	b.must(os.Rename(b.mount+"/x/y", b.mount+"/z"))
	b.must(os.Rename(b.mount+"/x", b.mount+"/z/x"))
	b.has(b.mount+"/z/mine", "mine")
	b.down()
	reported := map[string]bool{}
	b.must(layer.Compare(layer.Options{Lower: b.lower}, b.options(), 0, 0, func(path string, _ bool) error { reported[path] = true; return nil }))
	if !reported["z/mine"] {
		t.Errorf("told are %v", reported)
	}
}

// TestModeCountsWithoutACLs for users other than the owner.
func TestModeCountsWithoutACLs(t *testing.T) {
	b := newBench(t)
	b.must(unix.Mount("none", b.lower, "ramfs", 0, ""))
	defer treetest.UnmountSoon(t, b.lower)
	b.write(b.lower+"/file", "text")
	b.must(os.Chown(b.lower+"/file", 1000, 1000))
	b.must(os.Chmod(b.lower+"/file", 0o664))
	b.up()
	b.has(b.mount+"/file", "text")
	b.down()
}
