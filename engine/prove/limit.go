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

// Amounts by which probes try to exceed a limit, in bytes or in number, and the largest limits that they try.
const (
	extraMemory = 64 << 20
	extraPIDs   = 50
	extraFiles  = 50
	extraDisk   = 2 << 20 // plus a fiftieth of the limit
	extraInodes = 50      // likewise

	mostPIDs   = 20_000 // more would take a minute
	mostInodes = 1_000_000
)

func limitProbes() []Probe {
	return []Probe{
		{Name: "memory", Args: []string{"BYTES"}, Kills: true, plan: planMemory},
		{Name: "memory-files", Args: []string{"BYTES"}, Kills: true, plan: planMemoryFiles},
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

// memory is a probe that allocates more bytes of memory than limit, in pieces, and writes to every page. A
// limit that works kills this process. If the kernel refuses memory instead, the isolation counts as held
// only if it did so below the limit.
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
			return past(used, limit, "bytes of memory were allocated", err)
		}
		pieces = append(pieces, p)
		for i := 0; i < piece; i += 4096 {
			p[i] = 1
		}
	}
	time.Sleep(watched) // a watched limit kills this process meanwhile
	return crossed("all of it was allocated, and stayed")
}

func planMemoryFiles(args []string) (attempt, error) {
	limit, err := number(args[0])
	return attempt{fmt.Sprintf("keep %d bytes in /dev/shm, /tmp and /run", limit+extraMemory), func() outcome { return memoryFiles(limit) }}, err
}

// memoryFiles is a probe that writes more bytes than limit to files in the sandbox's filesystems in memory,
// which count for its memory limit.
func memoryFiles(limit int64) outcome {
	const piece = 4 << 20
	buf, noise := make([]byte, piece), rand.NewChaCha8([32]byte{2})
	var kept int64
	var last error
	for _, dir := range []string{"/dev/shm", "/tmp", "/run"} {
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
			continue // a directory of the disk
		}
		name := dir + "/prove-memory"
		defer os.Remove(name) //nolint:errcheck // a leftover is in the sandbox
		got, err := fill(name, limit+extraMemory-kept, buf, noise)
		if kept += got; kept >= limit+extraMemory {
			time.Sleep(watched) // a watched limit kills this process meanwhile
			return crossed("all of it was kept")
		}
		last = err
	}
	time.Sleep(watched)
	return past(kept, limit, "bytes were kept", last)
}

// watched is how long a probe exceeds a limit that the kernel does not enforce: long enough for the
// supervisor, which checks such limits now and then, to notice, even on a busy machine.
const watched = time.Second

// past returns the outcome of a probe that tried to exceed limit: err stopped it after it got the amount got.
// The isolation held if got is at most limit. what names the amount.
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

// pids is a probe that starts more sleeping processes than limit allows, and ends them. The limit works if
// the kernel refuses one in time.
func pids(limit int64) outcome {
	warm()
	sleep, err := run.Look("sleep")
	if err != nil {
		return untried("%v", err)
	}
	var all []*os.Process
	defer func() {
		for _, p := range all {
			p.Kill() //nolint:errcheck // a child of this process
			p.Wait() //nolint:errcheck // likewise
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

// warm makes the Go runtime create its threads before a probe uses up the limit of processes: the runtime
// would crash if it needed a thread then.
func warm() {
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			wait := unix.NsecToTimespec(int64(20 * time.Millisecond))
			unix.Nanosleep(&wait, nil) //nolint:errcheck // a shorter sleep is enough
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
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0) // package os would register it with the poller
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

// disk is a probe that tries to exceed a sandbox's disk limit by writing all bytes, more than limit, of
// incompressible data to files in a new directory in dir. The isolation held if a write is refused for lack
// of space or quota, and failed if everything is written; limit appears only in the message. The files are
// small, so that no limit on the size of a file refuses a write first.
func disk(limit, all int64, dir string) outcome {
	dir, err := os.MkdirTemp(dir, "prove-")
	if err != nil {
		return untried("%v", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a leftover is in the sandbox
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
	return written, f.Sync() // some filesystems allocate space only now
}

func planInodes(args []string) (attempt, error) {
	limit, err := number(args[0])
	if err == nil && limit > mostInodes {
		err = fmt.Errorf("more than %d files would take too long", mostInodes)
	}
	all := limit + limit/50 + extraInodes
	return attempt{fmt.Sprintf("make %d files in %s", all, args[1]), func() outcome { return inodes(limit, all, args[1]) }}, err
}

// inodes is a probe, run inside a sandbox, of the limit on files. It creates empty files in a directory below dir
// until one is refused, as it should be, or there are all, which is more than limit; limit appears only in the
// message.
func inodes(limit, all int64, dir string) outcome {
	dir, err := os.MkdirTemp(dir, "prove-")
	if err != nil {
		return untried("%v", err)
	}
	defer os.RemoveAll(dir)           //nolint:errcheck // a leftover is in the sandbox
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
