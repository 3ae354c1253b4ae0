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
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
)

func full() []promise {
	var all []promise
	for _, name := range slices.Sorted(maps.Keys(verbs())) {
		all = append(all, promise{
			name: name + ": a full disk is said to be one, and loses nothing", offered: verbs()[name].offered, ground: true,
			test: func(x *workbench) { fullDisk(newWorkbench(x.TB, x.subject, x.subject.Small), name) },
		})
	}
	return all
}

// fullDisk fills the disk up, then carries the verb out with a little more
// room each time, until it succeeds.
func fullDisk(x *workbench, name string) {
	setStage(x)
	x.write("bulk", noise(512<<10))
	x.in(x.view("work"), func(dir string) { x.put(dir, "bulk", noise(256<<10)) })
	ballast, room := x.fill(), int64(0)
	succeeded, refused := false, 0
	most, growth := 14, 1
	if testing.Short() { // it looks for races, and a disk is filled by one
		most, growth = 5, 3
	}
	for n := 0; n < most && !succeeded; n++ {
		id, when := fmt.Sprintf("n%d", n), fmt.Sprintf("%s on a full disk, try %d", name, n)
		if verbs()[name].ready != nil {
			ballast.leave(x, 4<<20) // what the verb takes away has to be there
			x.ready(name, id)
			ballast = x.fill()
			ballast.leave(x, room)
		}
		err := x.do(x.Context(), name, id)
		if err != nil {
			x.fails(err, snapshot.ErrNoSpace, when)
			refused++
		}
		succeeded = err == nil
		ballast.leave(x, 1<<20) // to look at it may take a block too
		x.stands(when)
		if there := x.look(name, id, when); there && err != nil {
			x.Errorf("%s: it failed (%v) and yet it answers for %s", when, err, id)
		}
		x.takeAway(id, when)
		ballast, room = x.fill(), 4096<<(n*growth)
		ballast.leave(x, room)
	}
	if refused == 0 && x.b.Facts().CopiesWhole && verbs()[name].makes != nothing {
		x.Errorf("%s copies whole trees to a full disk", name)
	}
	ballast.leave(x, 1<<40)
	x.again()
	x.ready(name, "last")
	x.must(x.do(x.Context(), name, "last"))
	x.clean()
}

func noise(n int) string {
	r := rand.NewChaCha8([32]byte{1})
	b := make([]byte, n)
	_, _ = r.Read(b) // it never fails
	return string(b)
}

// A ballast is a file beside the tree that takes all the room there is.
type ballast struct {
	path string
	size int64
}

func (x *workbench) fill() *ballast {
	x.Helper()
	b := &ballast{path: filepath.Join(filepath.Dir(x.place.Tree.Path), "ballast")}
	f, err := os.OpenFile(b.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	x.must(err)
	defer f.Close()
	for chunk := 1 << 20; chunk >= 512; {
		if _, err = f.WriteString(noise(chunk)); err == nil {
			x.must(f.Sync()) // an extent of its own: btrfs gives back whole ones only
			continue
		}
		if !outOfRoom(err) {
			x.Fatal("filling the disk:", err)
		}
		chunk /= 2
		_ = f.Sync() // a filesystem may find room when it settles; or not
	}
	info, err := f.Stat()
	x.must(err)
	b.size = info.Size()
	if _, err := f.WriteString(noise(64 << 10)); err == nil {
		x.Fatal("the disk cannot be filled")
	}
	return b
}

// leave gives some bytes back, and waits until they are there: btrfs keeps what
// was freed for the transaction under way.
func (b *ballast) leave(x *workbench, room int64) {
	x.Helper()
	b.size = max(0, b.size-room)
	f, err := os.OpenFile(b.path, os.O_RDWR, 0)
	x.must(err)
	defer f.Close()
	if err = f.Truncate(b.size); outOfRoom(err) {
		b.shrink(x)
		return
	}
	x.must(err)
	x.must(unix.Syncfs(int(f.Fd())))
}

// shrink makes a smaller ballast in the place of a larger one: at its quota ZFS refuses
// to cut a file short, and removes one. A quota counts more than what is in the file, so
// that there it may not fit any more.
func (b *ballast) shrink(x *workbench) {
	x.Helper()
	dir, err := os.Open(filepath.Dir(b.path))
	x.must(err)
	defer dir.Close()
	x.must(errors.Join(os.Remove(b.path), unix.Syncfs(int(dir.Fd()))))
	deadline := time.Now().Add(time.Minute) // what was freed comes back some transactions later
	f, err := os.Create(b.path)
	for outOfRoom(err) && time.Now().Before(deadline) {
		x.must(unix.Syncfs(int(dir.Fd())))
		f, err = os.Create(b.path)
	}
	x.must(err)
	defer f.Close()
	for left := b.size; left > 0; {
		n, err := f.WriteString(noise(int(min(left, 1<<20))))
		left -= int64(n)
		if !outOfRoom(err) || time.Now().After(deadline) {
			x.must(err)
		}
		x.must(unix.Syncfs(int(f.Fd())))
	}
}

func outOfRoom(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
