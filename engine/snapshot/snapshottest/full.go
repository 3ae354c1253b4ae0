//go:build linux

package snapshottest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

func full() []promise {
	var all []promise
	for _, name := range slices.Sorted(maps.Keys(verbs())) {
		all = append(all, promise{
			name: name + ": a full disk is reported as one, and nothing is lost", offered: verbs()[name].offered, storage: true,
			test: func(x *workbench) { fullDisk(x, name) }, small: true,
		})
	}
	return all
}

// fullDisk is the test that the method of a backend called name leaves no damage when the disk is full. It
// fills the disk and then calls the method with a little more free space each time, until it succeeds.
func fullDisk(x *workbench, name string) {
	prepareTree(x)
	x.write("bulk", noise(512<<10))
	x.in(x.view("work"), func(dir string) { x.put(dir, "bulk", noise(256<<10)) })
	ballast, room := x.ballast(), int64(0)
	ballast.Fill(x)
	succeeded, refused := false, 0
	tries, growth := treetest.Budget(x, 6, 14), treetest.Budget(x, 3, 1)
	for n := 0; n < tries && !succeeded; n++ {
		id, when := fmt.Sprintf("n%d", n), fmt.Sprintf("%s on a full disk, try %d", name, n)
		if verbs()[name].ready != nil {
			ballast.Leave(x, 4<<20) // ready needs space for the object that the verb removes
			x.ready(name, id)
			ballast.Fill(x)
			ballast.Leave(x, room)
		}
		err := x.do(x.Context(), name, id)
		if err != nil {
			x.fails(err, errs.ErrNoSpace, when)
			refused++
		}
		succeeded = err == nil
		ballast.Leave(x, 1<<20) // reading may need a block too
		x.intact(when)
		if there := x.look(name, id, when); there && err != nil {
			x.Errorf("%s: the verb failed (%v), yet Lookup returns %s", when, err, id)
		}
		x.removeBoth(id, when)
		room = 4096 << (n * growth)
		ballast.Fill(x)
		ballast.Leave(x, room)
	}
	if refused == 0 && x.b.Facts().CopiesWhole && verbs()[name].makes != nothing {
		x.Errorf("%s copies whole trees to a full disk", name)
	}
	ballast.Leave(x, 1<<40)
	x.reopen()
	x.ready(name, "last")
	x.must(x.do(x.Context(), name, "last"))
	x.clean()
}

// noise returns n bytes that no filesystem can compress, always the beginning of the same text. It makes a text
// only when it needs a longer one than before, because tests write a lot of noise.
func noise(n int) string {
	longest.Lock()
	defer longest.Unlock()
	if len(longest.text) < n {
		b := make([]byte, n)
		_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // it never fails
		longest.text = string(b)
	}
	return longest.text[:n]
}

// longest is the longest text that noise has made. Shorter texts are its beginning.
var longest struct {
	sync.Mutex
	text string
}

// A Ballast occupies the free space of a small disk, for tests of a full disk. Its methods end the test if
// they fail.
type Ballast interface {
	// Fill takes all free space of the disk, including space that has become free since the last call.
	Fill(t testing.TB)
	// Leave frees room bytes of the ballast, which fills a small disk, or all of it if it is smaller, and
	// waits until they can be used.
	Leave(t testing.TB, room int64)
}

func (x *workbench) ballast() Ballast {
	x.Helper()
	if x.subject.Ballast != nil {
		return x.subject.Ballast(x, x.place)
	}
	return &fileBallast{path: filepath.Join(filepath.Dir(x.place.Tree.Path), "ballast")}
}

// A fileBallast is a [Ballast], which fills the disk in tests of a full disk, that consists of one file
// beside the tree.
type fileBallast struct {
	path string
	size int64
}

func (b *fileBallast) Fill(t testing.TB) {
	t.Helper()
	f, err := os.OpenFile(b.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	must(t, err)
	defer f.Close()
	for chunk := 1 << 20; chunk >= 512; {
		if _, err = f.WriteString(noise(chunk)); err == nil {
			must(t, f.Sync()) // an extent of its own: btrfs frees only whole extents
			continue
		}
		if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
			t.Fatal("filling the disk:", err)
		}
		chunk /= 2
		_ = f.Sync() // a sync may free some space
	}
	info, err := f.Stat()
	must(t, err)
	b.size = info.Size()
	if _, err := f.WriteString(noise(64 << 10)); err == nil {
		t.Fatal("the disk cannot be filled")
	}
}

// Leave shortens the file by room bytes and syncs: btrfs does not reuse freed space before the running
// transaction has committed.
func (b *fileBallast) Leave(t testing.TB, room int64) {
	t.Helper()
	b.size = max(0, b.size-room)
	f, err := os.OpenFile(b.path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	must(t, f.Truncate(b.size))
	must(t, unix.Syncfs(int(f.Fd())))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
