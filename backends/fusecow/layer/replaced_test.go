//go:build linux

package layer_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestWhatWasChangedStaysWhateverComesBelow: people save files by renaming new ones into
// their place, and make directories afresh, while a sandbox works on what was there.
func TestWhatWasChangedStaysWhateverComesBelow(t *testing.T) {
	b := newBench(t)
	b.must(os.MkdirAll(b.lower+"/dir/sub", 0o755))
	for _, name := range []string{"/edited", "/read", "/dir/sub/edited", "/dir/sub/other", "/dir/sub/chmod"} {
		b.write(b.lower+name, "old")
	}
	b.up()
	b.write(b.mount+"/edited", "mine")
	b.write(b.mount+"/dir/sub/edited", "mine")
	b.must(os.Chmod(b.mount+"/dir/sub/chmod", 0o400))
	if _, err := os.Stat(b.mount + "/read"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/edited", "/read"} {
		b.write(b.lower+"/new", "theirs, and longer")
		b.must(os.Rename(b.lower+"/new", b.lower+name))
	}
	b.must(os.Rename(b.lower+"/dir", b.lower+"/away"))
	b.must(os.MkdirAll(b.lower+"/dir/sub", 0o755))
	b.write(b.lower+"/dir/sub/other", "theirs")
	b.write(b.lower+"/dir/sub/chmod", "theirs")
	// One that was replaced and not changed may be answered with an error, once.
	within := time.Now().Add(5 * time.Second)
	for {
		text, err := os.ReadFile(b.mount + "/read")
		if string(text) == "theirs, and longer" {
			break
		}
		if !errors.Is(err, unix.ESTALE) || time.Now().After(within) {
			t.Fatalf("what was replaced below reads %q, %v", text, err)
		}
	}
	for _, when := range []bool{false, true, false} {
		b.has(b.mount+"/edited", "mine")
		b.has(b.mount+"/dir/sub/edited", "mine")
		st, err := os.Stat(b.mount + "/dir/sub/chmod")
		b.must(err)
		if st.Mode().Perm() != 0o400 {
			t.Errorf("mode %o, want 400", st.Mode().Perm())
		}
		b.at(func(root *os.File) { b.must(root.Sync()) })
		b.again(when)
	}
	b.has(b.mount+"/dir/sub/other", "theirs")
	b.down()
}
