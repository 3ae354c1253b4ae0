//go:build linux

package snapshottest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

func limits() []promise {
	return []promise{
		{name: "a limit is enforced, or refused with a reason and a hint", test: limitsHonestly, offered: is[snapshot.Limiter]},
		{name: "a fork's writes end at its limit, whatever is written", test: writesEnd, offered: limitsBytes, storage: true},
		{name: "space deleted in a full fork can be written again", test: deletingMakesRoom, offered: limitsBytes, storage: true},
		{name: "a limit is increased, lowered and removed on a live fork", test: limitsLive, offered: limitsBytes, storage: true},
		{name: "a limit outlives sealing and reopening, which do not reset its count", test: limitsLast, offered: limitsBytes, storage: true},
		{name: "a limit holds for its fork alone, and goes with it", test: limitsAreSeparate, offered: limitsBytes, storage: true},
		{name: "forks that share a limit are counted together", test: limitsShared, offered: sharesLimits, storage: true},
		{name: "the new inodes of a fork end at its limit", test: inodesEnd, offered: limitsInodes, storage: true},
	}
}

// limitBytes returns the disk limit of most tests, in bytes: 16 MiB, or 8 MiB in make test.
func (x *workbench) limitBytes() int64 {
	x.Helper()
	return int64(treetest.Budget(x, 8, 16)) << 20
}

// slack returns how many bytes of a limit a fork may leave unused before a write fails: 1 % and 1 MiB.
func slack(limit int64) int64 { return limit/100 + 1<<20 }

func limitsBytes(b snapshot.Backend) bool { return canLimit(b, snapshot.DiskLimit{Bytes: 1}) }

func limitsInodes(b snapshot.Backend) bool { return canLimit(b, snapshot.DiskLimit{Inodes: 1}) }

func sharesLimits(b snapshot.Backend) bool {
	return limitsBytes(b) && as[snapshot.Limiter](b).LimitPlace() != ""
}

func canLimit(b snapshot.Backend, l snapshot.DiskLimit) bool {
	p, ok := b.(snapshot.Limiter)
	return ok && p.CanLimit(context.Background(), l) == nil
}

func (x *workbench) limit(id snapshot.ForkID, n int64) {
	x.Helper()
	x.must(as[snapshot.Limiter](x.b).LimitFork(x.Context(), id, snapshot.DiskLimit{Bytes: snapshot.Bytes(n)}))
}

// limitsHonestly is a test that every [snapshot.Limiter] must pass: LimitFork succeeds for exactly those disk
// limits that CanLimit accepts.
func limitsHonestly(x *workbench) {
	x.write("file", "base")
	x.capture("s1")
	x.fork("s1", "f1")
	p, lim := as[snapshot.Limiter](x.b), as[snapshot.Limiter](x.b)
	none := snapshot.DiskLimit{}
	for _, l := range []snapshot.DiskLimit{none, {Bytes: 4 << 20}, {Inodes: 1000}, {Bytes: 4 << 20, Inodes: 1000}} {
		said, did := p.CanLimit(x.Context(), l), lim.LimitFork(x.Context(), "f1", l)
		what := fmt.Sprintf("a limit of %v and %d inodes", l.Bytes, l.Inodes)
		for _, err := range []error{said, did} {
			var e *errs.Error
			switch {
			case (err == nil) != (said == nil):
				x.Errorf("%s: CanLimit returns %v, LimitFork %v", what, said, did)
			case err == nil:
			case l == none:
				x.Errorf("removing all limits: %v", err)
			case !errors.As(err, &e) || len(e.Hints) == 0:
				x.Errorf("%s is refused without a hint: %v", what, err)
			default:
				x.fails(err, errs.ErrNotSupported, what)
			}
		}
		x.in(x.view("f1"), func(dir string) { x.put(dir, "mine", noise(1<<20)) })
		x.must(lim.LimitFork(x.Context(), "f1", none))
	}
	x.in(x.view("f1"), func(dir string) { x.put(dir, "mine", noise(6<<20)) })
	if limitsBytes(x.b) {
		x.fails(lim.LimitFork(x.Context(), "no", snapshot.DiskLimit{Bytes: snapshot.Bytes(x.limitBytes())}), errs.ErrNotFound, "limiting an unknown fork")
	}
	x.clean()
}

// fillUntil calls add, which writes some bytes and returns how many, until it fails with ENOSPC or EDQUOT. It
// returns the number of bytes added. If that exceeds enough, no limit holds and the test fails; what
// describes the writes in failures.
func (x *workbench) fillUntil(what string, enough int64, add func(i int) (int64, error)) (sum int64) {
	x.Helper()
	for i := 0; ; i++ {
		n, err := add(i)
		sum += n
		switch {
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
			return sum
		case err != nil:
			x.Fatalf("%s: %v after %v", what, err, snapshot.Bytes(sum))
		case sum > enough:
			x.Fatalf("%s: no limit stops it at %v", what, snapshot.Bytes(sum))
		}
	}
}

// nearLimit checks that got, the bytes that a fork accepted, is near its limit want: at most 1 % and 1 MiB
// less, and at most 64 KiB more, for directories of the backend's own. what names the written files in
// failures.
func (x *workbench) nearLimit(what string, got, want int64) {
	x.Helper()
	if got > want+64<<10 || got < want-slack(want) {
		x.Errorf("%s ends at %d bytes, of a limit of %d", what, got, want)
	}
}

// fillFile appends to the file name in dir until the disk limit stops it, and returns the number of bytes.
func (x *workbench) fillFile(dir, name string) int64 {
	x.Helper()
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	x.must(err)
	defer f.Close()
	return x.append(f)
}

func (x *workbench) append(f *os.File) int64 {
	x.Helper()
	return x.fillUntil("appending to a file", 2*x.limitBytes(), func(int) (int64, error) {
		n, err := f.WriteString(chunk)
		return int64(n), err
	})
}

// chunk is 64 KiB of data that no filesystem can compress, which tests write until they reach a disk limit.
var chunk = noise(64 << 10)

// ways returns functions that add data to the fork mounted at dir in different ways, by name, such as one
// large file or many small ones. The base must have enough files of 256 KiB in "base".
func ways(x *workbench, dir string) map[string]func(i int) (int64, error) {
	write := func(name string, flags int, text string) (int64, error) {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|flags, 0o644)
		if err != nil {
			return 0, err
		}
		n, err := f.WriteString(text)
		return int64(n), errors.Join(err, f.Close())
	}
	most := x.limitBytes()
	return map[string]func(i int) (int64, error){
		"one large file": func(int) (int64, error) { return write("large", os.O_CREATE|os.O_APPEND, chunk) },
		"small files": func(i int) (int64, error) {
			return write(fmt.Sprintf("small%d", i), os.O_CREATE|os.O_EXCL, chunk[:16<<10])
		},
		"space allocated ahead": func(i int) (int64, error) {
			f, err := os.OpenFile(filepath.Join(dir, "ahead"), os.O_WRONLY|os.O_CREATE, 0o644)
			x.must(err)
			defer f.Close()
			const step = 256 << 10
			if err := unix.Fallocate(int(f.Fd()), 0, int64(i)*step, step); err != nil {
				return 0, err
			}
			return step, nil
		},
		"files of the base": func(i int) (int64, error) {
			name := fmt.Sprintf("base/%d", i)
			n, err := write(name, 0, strings.Repeat(chunk, 4))
			if n == 0 && err != nil { // xfs counts the old and the new content until the new one is on the disk
				d, openErr := os.Open(dir)
				x.must(openErr)
				x.must(errors.Join(unix.Syncfs(int(d.Fd())), d.Close()))
				n, err = write(name, 0, strings.Repeat(chunk, 4))
			}
			return n, err
		},
		"holes, and what lies between": func(i int) (int64, error) {
			f, err := os.OpenFile(filepath.Join(dir, "holes"), os.O_WRONLY|os.O_CREATE, 0o644)
			x.must(err)
			defer f.Close()
			n, err := f.WriteAt([]byte(chunk), int64(i)*most)
			return int64(n), err
		},
	}
}

func writesEnd(x *workbench) {
	most := x.limitBytes()
	files := 2 * most / (256 << 10)
	for i := range files {
		x.write(fmt.Sprintf("base/%d", i), noise(256<<10))
	}
	x.capture("s1")
	for what := range ways(x, "") {
		x.fork("s1", "f1")
		x.limit("f1", most)
		x.in(x.view("f1"), func(dir string) {
			x.nearLimit(what, x.fillUntil(what, most*3/2, ways(x, dir)[what]), most)
		})
		x.must(x.b.RemoveFork(x.Context(), "f1"))
	}
	x.clean()
}

func deletingMakesRoom(x *workbench) {
	most := x.limitBytes()
	x.write("file", "base")
	x.capture("s1")
	x.fork("s1", "f1")
	x.limit("f1", most)
	x.in(x.view("f1"), func(dir string) {
		x.nearLimit("a file", x.fillFile(dir, "first"), most)
		x.must(os.Remove(dir + "/first"))
		deadline := time.Now().Add(35 * time.Second) // a filesystem commits every 30 seconds
		again := x.fillFile(dir, "second")
		for again < most-slack(most) && time.Now().Before(deadline) {
			time.Sleep(100 * time.Millisecond)
			again += x.fillFile(dir, "second")
		}
		x.nearLimit("a file after another was deleted", again, most)
	})
	x.clean()
}

func limitsLive(x *workbench) {
	most := x.limitBytes()
	x.write("file", "base")
	x.capture("s1")
	x.fork("s1", "f1")
	x.in(x.view("f1"), func(dir string) {
		const old = 1 << 20
		x.put(dir, "old/deep/file", noise(old))
		f, err := os.OpenFile(dir+"/mine", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		x.must(err)
		defer f.Close()
		x.limit("f1", most/2)
		sum := x.append(f)
		x.nearLimit("a file beside one from before the limit", old+sum, most/2)
		x.limit("f1", most)
		x.limit("f1", most)
		sum += x.append(f)
		x.nearLimit("a file whose limit was increased", old+sum, most)
		x.limit("f1", most/4)
		if n := x.append(f); n > 0 {
			x.Errorf("a file above the lowered limit grew by %v", snapshot.Bytes(n))
		}
		if st, err := f.Stat(); err != nil || st.Size() != sum {
			x.Errorf("the file has %d bytes, want %d, %v", st.Size(), sum, err)
		}
		x.must(errors.Join(os.Remove(dir+"/mine"), f.Close()))
		x.nearLimit("a file when the limit was lowered", old+x.fillFile(dir, "mine"), most/4)
		x.limit("f1", 0)
		x.put(dir, "more", noise(int(most)))
	})
	x.clean()
}

func limitsLast(x *workbench) {
	most := x.limitBytes()
	for _, use := range []snapshot.Use{snapshot.Idle, snapshot.InUse} {
		id := map[snapshot.Use]string{snapshot.Idle: "idle", snapshot.InUse: "used"}[use]
		f1, s1, s2 := snapshot.ForkID(id), snapshot.ID(id+"1"), snapshot.ID(id+"2")
		x.capture(s1)
		x.fork(s1, f1)
		x.limit(f1, most)
		x.in(x.view(f1), func(dir string) { x.put(dir, "before", noise(int(most/2))) })
		x.seal(f1, s2, use)
		x.reopen()
		x.in(x.view(f1), func(dir string) {
			x.nearLimit("before and after sealing as "+id, most/2+x.fillFile(dir, "after"), most)
		})
		x.has(x.snap(s2), "before", noise(int(most/2)), "the snapshot")
		x.seal(f1, snapshot.ID(id+"3"), use) // the fork is full
		other := snapshot.ForkID(id + "-other")
		x.in(x.fork(s2, other).View, func(dir string) { x.put(dir, "mine", noise(int(most+most/2))) })
		if m, ok := x.b.(snapshot.ChangeLister); ok {
			used, err := m.Usage(x.Context(), other)
			x.must(err)
			if int64(used) < most || int64(used) > 2*most {
				x.Errorf("a fork of a sealed snapshot with a file of %v uses %v", snapshot.Bytes(most+most/2), used)
			}
		}
	}
	x.clean()
}

func limitsAreSeparate(x *workbench) {
	most := x.limitBytes()
	x.write("file", "base")
	x.capture("s1")
	for _, id := range []snapshot.ForkID{"f1", "f2", "f3"} {
		x.fork("s1", id)
	}
	x.limit("f1", most/2)
	x.limit("f2", most/2)
	x.in(x.view("f1"), func(dir string) { x.nearLimit("a file", x.fillFile(dir, "mine"), most/2) })
	x.in(x.view("f3"), func(dir string) { x.put(dir, "mine", noise(int(most))) })
	x.write("real", noise(int(most)))
	x.in(x.view("f2"), func(dir string) {
		x.nearLimit("a file of another fork", x.fillFile(dir, "mine"), most/2)
		x.must(x.b.RemoveFork(x.Context(), "f1"))
		if n := x.fillFile(dir, "mine"); n > 1<<20 {
			x.Errorf("when another fork is removed, a full one takes %v more", snapshot.Bytes(n))
		}
	})
	x.fork("s1", "f1")
	x.in(x.view("f1"), func(dir string) { x.put(dir, "mine", noise(int(most))) })
	x.clean()
}

func limitsShared(x *workbench) {
	most := x.limitBytes()
	x.write("file", "base")
	x.capture("s1")
	share := func(id snapshot.ForkID, n int64) {
		x.must(as[snapshot.Limiter](x.b).LimitFork(x.Context(), id, snapshot.DiskLimit{Bytes: snapshot.Bytes(n), Share: "all"}))
	}
	for _, id := range []snapshot.ForkID{"f1", "f2", "own"} {
		x.fork("s1", id)
	}
	share("f1", most)
	share("f2", most)
	x.limit("own", most)
	half := noise(int(most / 2))
	x.in(x.view("f1"), func(dir string) { x.put(dir, "mine", half) })
	x.in(x.view("f2"), func(dir string) { x.nearLimit("two forks", most/2+x.fillFile(dir, "mine"), most) })
	x.in(x.view("own"), func(dir string) { x.put(dir, "mine", half) })
	used, err := as[snapshot.Limiter](x.b).Gauge(x.Context(), "f1")
	x.must(err)
	x.nearLimit("the gauge of two full forks", int64(used.Bytes), most)
	x.fork("s1", "f3") // as a rollback does
	share("f3", 2*most)
	x.must(x.b.RemoveFork(x.Context(), "f1"))
	x.must(x.b.Sweep(x.Context()))
	x.in(x.view("f3"), func(dir string) { x.put(dir, "mine", half+half[:most/4]) })
	x.in(x.view("f2"), func(dir string) { x.put(dir, "more", half[:1<<20]) })
	x.clean()
}

func inodesEnd(x *workbench) {
	x.write("file", "base")
	x.capture("s1")
	x.fork("s1", "f1")
	const nodes = 1000
	lim := as[snapshot.Limiter](x.b)
	x.must(lim.LimitFork(x.Context(), "f1", snapshot.DiskLimit{Inodes: nodes}))
	x.in(x.view("f1"), func(dir string) {
		n := x.fillUntil("making files", 2*nodes, func(i int) (int64, error) {
			f, err := os.OpenFile(fmt.Sprintf("%s/%d", dir, i), os.O_CREATE|os.O_WRONLY, 0o644)
			if err != nil {
				return 0, err
			}
			return 1, f.Close()
		})
		if n > nodes*101/100 || n < nodes*99/100 {
			x.Errorf("%d files can be made, of a limit of %d inodes", n, nodes)
		}
		x.put(dir, "0", "a file that is there can be written to")
	})
	x.clean()
}
