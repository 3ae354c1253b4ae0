//go:build linux

package btrfs

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOwnershipIsReadFromTheStartOfAMark gives entries marks of both kinds, and files that are none.
func TestOwnershipIsReadFromTheStartOfAMark(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	long := mark{kind: snapshots, tree: "/w", within: ".", taken: time.Unix(1, 2).UTC()}
	for i := range uint64(2000) { // longer than one read
		long.line = append(long.line, ancestor{"0b4b7a1c-58cc-4372-a567-0e02b2c3d479", i})
	}
	fork := mark{kind: forks, tree: "/w", within: ".", base: "s1", taken: time.Unix(1, 2)}
	whole := long.text()
	for _, c := range []struct {
		id, text string
		want     bool
	}{
		{"long", whole, true},
		{"fork", fork.text(), false},
		{"damaged", whole[:len(markFormat)+5], true},
		{"cut", whole[:len(whole)/2], true},
		{"newer", "snapfs btrfs 2\n", true}, // nothing of it is understood, and so it counts as damaged
		{"indented", strings.Replace(whole, "\none of", "\n\none of", 1), true},
	} {
		at := filepath.Join(dir, snapshots, c.id)
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, markName), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := (dataDir{fd}).hasMark(snapshots, c.id); got != c.want {
			t.Errorf("%s: got %v, want %v", c.id, got, c.want)
		}
	}
	if (dataDir{fd}).hasMark(snapshots, "none") {
		t.Error("an entry without a mark counts as this backend's")
	}
	if got, err := (dataDir{fd}).readMark(snapshots + "/long"); err != nil || !reflect.DeepEqual(got, long) {
		t.Errorf("a mark of %d bytes is read as %d ancestors: %v", len(whole), len(got.line), err)
	}
}
