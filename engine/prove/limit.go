//go:build linux

package prove

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/run"
)

// How far past a limit a probe goes.
const (
	extraMemory = 64 << 20
	extraPIDs   = 50
	extraFiles  = 50
	extraDisk   = 2 << 20 // and a fiftieth of the limit
	extraInodes = 50      // the same

	mostPIDs   = 20_000 // above that it would take a minute
	mostInodes = 1_000_000
)

func limitProbes() []Probe {
	return []Probe{
		{Name: "memory", Args: []string{"BYTES"}, Kills: true, plan: planMemory},
		{Name: "pids", Args: []string{"COUNT"}, plan: planPIDs},
		{Name: "files", Args: []string{"COUNT"}, plan: planFiles},
		{Name: "disk", Args: []string{"BYTES", "DIR"}, plan: planDisk},
		{Name: "inodes", Args: []string{"COUNT", "DIR"}, plan: planInodes},
	}
}

func number(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%q is no number above zero", text)
	}
	return n, nil
}

func planMemory(args []string) (attempt, error) {
	limit, err := number(args[0])
	return attempt{fmt.Sprintf("use %d bytes of memory", limit+extraMemory), func() outcome { return memory(limit) }}, err
}

// memory takes memory in pieces and writes to every page of it.
func memory(limit int64) outcome {
	const piece = 4 << 20
	var pieces [][]byte
	defer func() {
		for _, p := range pieces {
			unix.Munmap(p) //nolint:errcheck // the kernel gave it
		}
	}()
	for used := int64(0); used < limit+extraMemory; used += piece {
		p, err := unix.Mmap(-1, 0, piece, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return past(used, limit, "bytes of memory were given", err)
		}
		pieces = append(pieces, p)
		for i := 0; i < piece; i += 4096 {
			p[i] = 1
		}
	}
	time.Sleep(watched) // where the limit is, this is killed meanwhile
	return crossed("all of it was given, and stayed")
}

// watched is longer than one who watches a limit, where the kernel does not hold it,
// takes to see that it was passed, on a busy machine too.
const watched = time.Second

// past judges what a limit let through.
func past(got, limit int64, what string, err error) outcome {
	o := held("%d %s, then: %v", got, what, err)
	o.held = got <= limit
	return o
}

func planPIDs(args []string) (attempt, error) {
	limit, err := number(args[0])
	if err == nil && limit > mostPIDs {
		err = fmt.Errorf("more than %d processes would take too long", mostPIDs)
	}
	return attempt{fmt.Sprintf("start %d processes", limit+extraPIDs), func() outcome { return pids(limit) }}, err
}

// pids starts processes that sleep, and ends them.
func pids(limit int64) outcome {
	warm()
	sleep, err := run.Look("sleep")
	if err != nil {
		return untried("%v", err)
	}
	var all []*os.Process
	defer func() {
		for _, p := range all {
			p.Kill() //nolint:errcheck // it is this process's child, so it is there
			p.Wait() //nolint:errcheck // the same
		}
	}()
	for n := int64(0); n < limit+extraPIDs; n++ {
		p, err := run.Background([]string{sleep, "60"}, nil)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return past(n, limit, "processes were started", err)
		case err != nil:
			return untried("process %d: %v", n+1, err)
		}
		all = append(all, p)
	}
	return crossed("all of them were started")
}

// warm has the runtime make the threads that it may want when there can be no
// new ones: it does not survive that. It keeps them.
func warm() {
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			wait := unix.NsecToTimespec(int64(20 * time.Millisecond))
			unix.Nanosleep(&wait, nil) //nolint:errcheck // shorter will do
		})
	}
	all.Wait()
}

func planFiles(args []string) (attempt, error) {
	limit, err := number(args[0])
	return attempt{fmt.Sprintf("open %d files", limit+extraFiles), func() outcome { return files(limit) }}, err
}

func files(limit int64) outcome {
	var all []*os.File
	defer func() {
		for _, f := range all {
			f.Close()
		}
	}()
	for n := int64(0); n < limit+extraFiles; n++ {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0) // package os would watch it
		switch {
		case errors.Is(err, unix.EMFILE):
			return past(n, limit, "files were opened", err)
		case err != nil:
			return untried("file %d: %v", n+1, err)
		}
		all = append(all, os.NewFile(uintptr(fd), "null"))
	}
	return crossed("all of them were opened")
}

func planDisk(args []string) (attempt, error) {
	limit, err := number(args[0])
	all := limit + limit/50 + extraDisk
	return attempt{fmt.Sprintf("write %d bytes in %s", all, args[1]), func() outcome { return disk(limit, all, args[1]) }}, err
}

// disk writes what cannot be compressed to one file after another, no larger
// than a limit of the size of files might be, until it is refused.
func disk(limit, all int64, dir string) outcome {
	dir, err := os.MkdirTemp(dir, "prove-")
	if err != nil {
		return untried("%v", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // what is left is in the sandbox
	noise := rand.NewChaCha8([32]byte{1})
	const piece = 1 << 20
	buf := make([]byte, piece)
	var written int64
	for n := 0; written < all; n++ {
		size := min(all-written, 16*piece)
		got, err := fill(fmt.Sprintf("%s/%d", dir, n), size, buf, noise)
		written += got
		switch {
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
			return held("%d bytes were written, then: %v", written, err)
		case err != nil:
			return untried("after %d bytes: %v", written, err)
		}
	}
	return crossed("all of it was written, though the limit is %d", limit)
}

func fill(path string, size int64, buf []byte, noise *rand.ChaCha8) (written int64, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for written < size {
		b := buf[:min(size-written, int64(len(buf)))]
		noise.Read(b) //nolint:errcheck // never an error
		n, err := f.Write(b)
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, f.Sync() // some filesystems only now look for the space
}

func planInodes(args []string) (attempt, error) {
	limit, err := number(args[0])
	if err == nil && limit > mostInodes {
		err = fmt.Errorf("more than %d files would take too long", mostInodes)
	}
	all := limit + limit/50 + extraInodes
	return attempt{fmt.Sprintf("make %d files in %s", all, args[1]), func() outcome { return inodes(limit, all, args[1]) }}, err
}

// inodes makes empty files until it is refused one.
func inodes(limit, all int64, dir string) outcome {
	dir, err := os.MkdirTemp(dir, "prove-")
	if err != nil {
		return untried("%v", err)
	}
	defer os.RemoveAll(dir)           //nolint:errcheck // what is left is in the sandbox
	for n := int64(1); n < all; n++ { // the directory is one
		f, err := os.OpenFile(fmt.Sprintf("%s/%d", dir, n), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		switch {
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
			return held("%d files were made, then: %v", n, err)
		case err != nil:
			return untried("file %d: %v", n, err)
		}
		f.Close()
	}
	return crossed("all of them were made, though the limit is %d", limit)
}
