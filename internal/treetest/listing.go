//go:build linux

package treetest

import (
	"testing"

	"golang.org/x/sys/unix"
)

// ListInParts lists a directory in two parts and returns all names. Between the parts it calls
// meanwhile with the names seen so far, and makes the kernel drop its cached listing, as under
// memory pressure. A name that appears twice fails the test.
func ListInParts(t testing.TB, dir string, meanwhile func(seen map[string]bool)) (all map[string]bool) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	all = map[string]bool{}
	more := func() bool {
		buf := make([]byte, 2048)
		n, err := unix.ReadDirent(fd, buf)
		if err != nil {
			t.Fatal(err)
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if all[name] {
				t.Errorf("%s: the name %s comes twice", dir, name)
			}
			all[name] = true
		}
		return n > 0
	}
	if !more() {
		t.Fatalf("%s: it is empty", dir)
	}
	meanwhile(all)
	if err := unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	for more() {
	}
	return all
}
