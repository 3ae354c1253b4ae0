package limits

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// ownNamespaces are namespaces like those of a container: users and processes of its own.
func ownNamespaces() *unix.SysProcAttr {
	return &unix.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getgid(), Size: 1}},
	}
}

// TestRlimitCountsProcessesExactly: RLIMIT_NPROC counts only the processes in the container.
func TestRlimitCountsProcessesExactly(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	treetest.Leaks(t)
	g := started(t, Limits{PIDs: 60}, Options{noCgroups: true})
	if by := held(g, PartPIDs); by != ByRlimit {
		t.Error(by)
	}
	b := newChild(t, g, "fork 400", ownNamespaces()).begin()
	if s := b.line(); !strings.HasPrefix(s, "refused ") {
		t.Error("a fork bomb:", s)
	}
	if n := threadsOf(descendants(b.cmd.Process.Pid)); n != 60 {
		t.Errorf("%d processes and threads, want 60", n)
	}
	if c, hit := g.LimitHit(); !hit || c.Text != "processes: all 60 in use" {
		t.Errorf("%+v", c)
	}
	u, err := g.Usage()
	must(t, err)
	if u.PIDs.Value != 60 || u.PIDsPeak.OK || u.Read.OK {
		t.Errorf("%+v", u)
	}
	if err := g.Set(t.Context(), Limits{PIDs: 70}); !errors.Is(err, errs.ErrNotSupported) || !strings.Contains(err.Error(), "pids") {
		t.Error(err)
	}
	closes(t, g)
	b.ends()
}

func TestWatcherLimitsMemory(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	treetest.Leaks(t)
	g := started(t, Limits{Memory: 64 << 20}, Options{noCgroups: true})
	b := newChild(t, g, "twice 200000000", ownNamespaces()).begin()
	c := hitBy(t, g, PartMemory)
	if !c.Killed || c.Text != "memory: 64 MiB used up" {
		t.Errorf("%+v", c)
	}
	b.ends()
	if by := held(g, PartMemory); by != ByWatcher {
		t.Error(by)
	}
	closes(t, g)
}

// TestWatcherCountsFilesInMemory: what no process maps, and once what one does.
func TestWatcherCountsFilesInMemory(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	treetest.Leaks(t)
	var stored atomic.Int64
	g := started(t, Limits{Memory: 128 << 20}, Options{noCgroups: true, Stored: func() (int64, []uint64) { return stored.Load(), nil }})
	b := newChild(t, g, "memfd 80000000", ownNamespaces()).begin() // written and mapped
	if s := b.line(); s != "written" {
		t.Fatal(s)
	}
	pids := descendants(b.cmd.Process.Pid)
	if n := memfdsOf(pids); n < 80_000_000 || n > 80<<20 {
		t.Error("its files are", n)
	}
	if n := g.memory(pids, 1); n < 80_000_000 || n > 120<<20 {
		t.Error("counted twice, or not:", n)
	}
	if c, hit := g.LimitHit(); hit {
		t.Fatalf("%+v", c)
	}
	stored.Store(60 << 20)
	if c := hitBy(t, g, PartMemory); !c.Killed {
		t.Errorf("%+v", c)
	}
	b.ends()
	closes(t, g)
}

// TestWatcherCountsEveryThread: the first thread of a process may end, and another one may have files of its
// own (clone(2) without CLONE_FILES). What they use counts.
func TestWatcherCountsEveryThread(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	treetest.Leaks(t)
	const each = 40_000_000
	g := started(t, Limits{Memory: 1 << 30}, Options{noCgroups: true})
	b := newChild(t, g, fmt.Sprint("thread ", each), ownNamespaces()).begin()
	if s := b.line(); !strings.HasPrefix(s, "took ") {
		t.Fatal(s)
	}
	pids := descendants(b.cmd.Process.Pid)
	if n := memoryOf(pids, 0); n < each {
		t.Error("roughly, its memory is", n)
	}
	if n := memoryOf(pids, 1); n < each {
		t.Error("its memory is", n)
	}
	if n := memfdsOf(pids); n < each || n > each+1<<20 {
		t.Error("its files are", n)
	}
	must(t, g.Set(t.Context(), Limits{Memory: 2 * each}))
	if c := hitBy(t, g, PartMemory); !c.Killed {
		t.Errorf("%+v", c)
	}
	b.ends()
	closes(t, g)
}

// TestWatcherCountsSharedMemoryOnce: shared pages do not count for each process.
func TestWatcherCountsSharedMemoryOnce(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	treetest.Leaks(t)
	g := started(t, Limits{Memory: 48 << 20}, Options{noCgroups: true})
	b := newChild(t, g, "fork 50", ownNamespaces()).begin() // 50 copies of one process
	if s := b.line(); s != "started 50" {
		t.Fatal(s)
	}
	pids := descendants(b.cmd.Process.Pid)
	if rough := memoryOf(pids, 0); rough < 48<<20 {
		t.Fatal("the processes are too small: ", rough)
	}
	time.Sleep(3 * pollInterval)
	if c, ok := g.LimitHit(); ok {
		t.Errorf("%+v", c)
	}
	closes(t, g)
}

func TestWatcherLimitsCPUTime(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	treetest.Leaks(t)
	const limit = 300 * time.Millisecond
	var ended atomic.Int64
	g := started(t, Limits{CPUTime: limit}, Options{noCgroups: true})
	g.o.KillAll = func(context.Context) error {
		ended.Add(1)
		return unix.Kill(g.pid, unix.SIGKILL)
	}
	late := lateness(t)
	b := newChild(t, g, "spin", ownNamespaces()).begin()
	if c := hitBy(t, g, PartCPUTime); !c.Killed {
		t.Errorf("%+v", c)
	}
	b.ends()
	used := b.cmd.ProcessState.SystemTime() + b.cmd.ProcessState.UserTime()
	most := limit + 50*time.Millisecond + 6*late()
	if used < limit-2*tick || used > most {
		t.Errorf("used %v of %v, at most %v", used, limit, most)
	}
	t.Log("used", used, "of", limit, "and at most", most)
	if ended.Load() == 0 {
		t.Error("not by its owner")
	}
	must(t, g.Close(t.Context()))
}

func TestThrottlerLimitsProcessors(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	treetest.Leaks(t)
	if _, err := Start(t.Context(), "sandbox", Limits{CPUs: 0.2}, Options{noCgroups: true}); !errors.Is(err, errs.ErrNotSupported) {
		t.Error("held by nothing:", err)
	}
	pid := make(chan int, 1)
	signal := func(s unix.Signal) func(context.Context) error {
		return func(context.Context) error {
			p := <-pid
			pid <- p
			return unix.Kill(p, s)
		}
	}
	g := started(t, Limits{CPUs: 0.2}, Options{noCgroups: true, Pause: signal(unix.SIGSTOP), Resume: signal(unix.SIGCONT)})
	b := newChild(t, g, "spin", ownNamespaces())
	pid <- b.cmd.Process.Pid
	b.begin()
	const most = 0.27
	if share := measureShare(t, g, 1500*time.Millisecond, most); share < 0.05 || share > most {
		t.Errorf("%.2f processors, want 0.2", share)
	}
	must(t, g.Set(t.Context(), Limits{})) // and the processes continue
	if share := measureShare(t, g, 500*time.Millisecond, 1); share < 0.3 && os.Getenv("SNAPFS_ALONE") == "1" {
		t.Errorf("%.2f processors without a limit", share)
	}
	closes(t, g)
	b.ends()
}

// TestRatesNeedACgroup: only a control group limits rates.
func TestRatesNeedACgroup(t *testing.T) {
	l := Limits{ReadRate: 1 << 20, Files: 100}
	if _, err := Start(t.Context(), "sandbox", l, Options{noCgroups: true}); !errors.Is(err, errs.ErrNotSupported) || !strings.Contains(err.Error(), "limiting io-read:") {
		t.Error(err)
	}
	g := started(t, l, Options{noCgroups: true, BestEffort: true})
	if level := g.Level(); len(level) != 2 || level[0].By != ByNothing || level[0].Note == "" || level[1].By != ByRlimit {
		t.Errorf("%+v", level)
	}
	closes(t, g)
}

// TestThrottlerCredit: unused time accumulates for at most a tenth of a second, and excess time is paid back.
func TestThrottlerCredit(t *testing.T) {
	at := time.Unix(1e9, 0)
	var m throttler
	m.update(at, 0, 0.5)
	at = at.Add(time.Hour)
	if stop, _ := m.update(at, 40*time.Millisecond, 0.5); stop {
		t.Error("paused although an hour has given credit")
	}
	if m.credit != 50*time.Millisecond {
		t.Error("credit:", m.credit)
	}
	at = at.Add(100 * time.Millisecond)
	stop, wait := m.update(at, 240*time.Millisecond, 0.5) // 200 ms, 50 were given now and 50 saved
	if !stop || wait != 200*time.Millisecond {
		t.Error(stop, wait)
	}
	if stop, _ := m.update(at.Add(wait), 240*time.Millisecond, 0.5); stop {
		t.Error("still stopped when all was paid back")
	}
}

// TestSpentCPUTimeIsCheckedAgain: also if the time was spent between a check and the choice of the next, and
// after the hit was reported, for processes that start then.
func TestSpentCPUTimeIsCheckedAgain(t *testing.T) {
	g := &Group{l: Limits{CPUTime: 1}, pid: os.Getpid()}
	if wait := g.nextPoll(); wait <= 0 {
		t.Error("never again")
	}
	g.counts.reported = []Part{PartCPUTime}
	if wait := g.nextPoll(); wait != pollInterval {
		t.Error("again after", wait)
	}
}

func TestProcessorsOfTheHost(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-3": 4, "0-3,6": 5, "0,2,4-5": 4, "": 0, "x": 0, "3-1": 0} {
		if n := countList(list); n != want {
			t.Errorf("%q: %d, want %d", list, n, want)
		}
	}
	if n := processors(); n < 1 || n < runtime.NumCPU() {
		t.Error(n)
	}
}

// TestSecretMemoryIsCounted although the kernel counts no blocks of such a file: a file of memfd_secret(2) that is mapped
// nowhere holds memory, too.
func TestSecretMemoryIsCounted(t *testing.T) {
	const size = 4 << 20
	pids := []int{os.Getpid()}
	before := memfdsOf(pids)
	fd, err := unix.MemfdSecret(0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		t.Log("no program of this host has such memory:", err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	if n := memfdsOf(pids) - before; n != size {
		t.Errorf("counted %d bytes, want %d", n, size)
	}
}
