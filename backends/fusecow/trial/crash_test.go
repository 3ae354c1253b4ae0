//go:build linux

package trial_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestKillAtAnyMomentLosesNothingSynced kills the server, again and again, while files are created, extended,
// renamed and removed, and layers frozen. Each time the layers have no problems, can be mounted, and have
// everything whose fsync returned.
func TestKillAtAnyMomentLosesNothingSynced(t *testing.T) {
	rounds, seed := 25, uint64(time.Now().UnixNano())
	if testing.Short() {
		rounds = 6
	}
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	h := newHost(t)
	workers := make([]*syncer, 4)
	for i := range workers {
		workers[i] = &syncer{dir: fmt.Sprintf("%s/w%d", h.mount, i), rnd: rand.New(rand.NewPCG(seed, uint64(i+1))), synced: map[string][]byte{}}
		h.must(os.Mkdir(fmt.Sprintf("%s/w%d", h.lower, i), 0o755))
	}
	acknowledged := func() (sum int64) {
		for _, w := range workers {
			sum += w.acknowledged.Load()
		}
		return sum
	}
	for round := range rounds {
		h.up()
		for _, w := range workers {
			h.must(w.check())
		}
		var all sync.WaitGroup
		for _, w := range workers {
			all.Go(w.work)
		}
		time.Sleep(time.Duration(rnd.IntN(100)) * time.Millisecond)
		if rnd.IntN(3) == 0 && len(h.layers) < 8 {
			h.freeze()
			time.Sleep(time.Duration(rnd.IntN(30)) * time.Millisecond)
		}
		// Every other round lets an fsync complete, however busy the machine.
		for before := int64(round); round%2 == 0 && acknowledged() <= before; time.Sleep(time.Millisecond) {
		}
		for began := time.Now(); acknowledged() <= int64(round) && time.Since(began) < 20*time.Second; {
			time.Sleep(time.Millisecond) // a busy machine may not have reached an fsync
		}
		h.must(h.server.Process.Kill())
		all.Wait()
		h.kill()
	}
	h.up()
	for _, w := range workers {
		h.must(w.check())
	}
	h.down()
	t.Logf("%d kills, %d acknowledged fsyncs", rounds, acknowledged())
	if acknowledged() < int64(rounds) {
		t.Errorf("%d fsyncs came to an end in %d rounds: nothing was tried", acknowledged(), rounds)
	}
}

// A syncer creates and syncs files in a directory of its own until the mount is dead.
type syncer struct {
	dir    string
	rnd    *rand.Rand
	next   int
	synced map[string][]byte // files that must exist, with their minimum sizes
	// acknowledged counts the calls of fsync(2) that returned nil.
	acknowledged atomic.Int64
}

// work ends at the first error, which a dead mount causes.
func (w *syncer) work() {
	for {
		w.next++
		name := fmt.Sprintf("f%d", w.next)
		if w.made(name) != nil {
			return
		}
		for old := range w.synced {
			if w.rnd.IntN(3) == 0 && w.lengthened(old) != nil {
				return
			}
			if w.rnd.IntN(3) == 0 {
				delete(w.synced, old) // may be gone from here on
				if os.Remove(w.dir+"/"+old) != nil {
					return
				}
			}
			break
		}
	}
}

// made creates a file atomically: write, sync, rename.
func (w *syncer) made(name string) error {
	data := bytes.Repeat([]byte{byte(w.next)}, w.rnd.IntN(20_000)+1)
	f, err := os.Create(w.dir + "/new-" + name)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), w.dir+"/"+name); err != nil {
		return err
	}
	if w.rnd.IntN(2) == 0 {
		err = f.Sync()
	} else {
		err = syncDir(w.dir)
	}
	if err == nil {
		w.acknowledged.Add(2)
		w.synced[name] = data
	}
	return err
}

func syncDir(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fsync(fd)
}

// lengthened appends to an existing file.
func (w *syncer) lengthened(name string) error {
	f, err := os.OpenFile(w.dir+"/"+name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	more := bytes.Repeat([]byte{byte(w.next + 1)}, w.rnd.IntN(5000)+1)
	if _, err := f.Write(more); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	w.acknowledged.Add(1)
	w.synced[name] = append(w.synced[name], more...)
	return nil
}

// check reads everything that must exist.
func (w *syncer) check() error {
	for name, want := range w.synced {
		got, err := os.ReadFile(w.dir + "/" + name)
		if err != nil {
			return err
		}
		if len(got) < len(want) || !bytes.Equal(got[:len(want)], want) {
			return fmt.Errorf("%s/%s: %d bytes that are not the %d which were synced", w.dir, name, len(got), len(want))
		}
		w.synced[name] = got
	}
	return nil
}
