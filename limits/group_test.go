package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/units"
	"github.com/snapfs/snapfs/internal/vfs"
)

func TestNoLimitsCreateNoCgroup(t *testing.T) {
	treetest.Leaks(t)
	g, err := Start(t.Context(), "sandbox", Limits{}, Options{})
	must(t, err)
	if len(g.Cgroups()) > 0 || len(g.Rlimits()) > 0 || len(g.Level()) > 0 {
		t.Error(g.Cgroups(), g.Rlimits(), g.Level())
	}
	must(t, g.Attach(os.Getpid()))
	if err := g.Set(t.Context(), Limits{PIDs: 10}); !errors.Is(err, errs.ErrNotSupported) {
		t.Error("limits were set without a control group:", err)
	}
	must(t, g.Close(t.Context()))
}

// TestMemoryLimitBoundsSocketBuffers: version 1 has a separate limit for them. Cost: 1 s.
func TestMemoryLimitBoundsSocketBuffers(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	const limit = 32 << 20
	g := started(t, Limits{Memory: limit}, Options{})
	b := newChild(t, g, "datagrams 200000000", nil).begin()
	var stored int
	if n, err := fmt.Sscanf(b.line(), "stored %d", &stored); err != nil || n != 1 || stored > limit {
		t.Errorf("%d bytes of datagrams are stored within %d: %v", stored, limit, err)
	}
	b.ends()
	closes(t, g)
}

func TestMemoryLimitKillsAllProcesses(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	g := started(t, Limits{Memory: 64 << 20}, Options{})
	if by := held(g, PartMemory); by != ByCgroup1 && by != ByCgroup2 {
		t.Error("held by", by)
	}
	b := newChild(t, g, "twice 200000000", nil).begin()
	c := hitBy(t, g, PartMemory)
	if c.Text != "memory: 64 MiB used up" || c.Value != "64M" || !c.Killed {
		t.Errorf("%+v", c)
	}
	b.ends()
	// The child in another session is dead as well, killed by the kernel.
	for start := time.Now(); !empty(g.members); time.Sleep(time.Millisecond) {
		if time.Since(start) > slow(2*time.Second) {
			t.Fatal("some processes are alive")
		}
	}
	closes(t, g)
}

func TestMemoryBelowTheLimitIsNoHit(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	g := started(t, Limits{Memory: 64 << 20, PIDs: 50}, Options{})
	b := newChild(t, g, "hog 20000000", nil).begin()
	if s := b.line(); s != "took 20" {
		t.Error(s)
	}
	if c, ok := g.LimitHit(); ok {
		t.Errorf("hit: %+v", c)
	}
	u, err := g.Usage()
	must(t, err)
	if !u.Memory.OK || u.Memory.Value < 20e6 || u.Memory.Value > 64<<20 || u.MemoryPeak.OK && u.MemoryPeak.Value < 20e6 {
		t.Errorf("%+v", u)
	}
	if u.PIDs.Value < 1 || u.PIDs.Value > 50 || u.CPUTime.Value <= 0 {
		t.Errorf("%+v", u)
	}
	closes(t, g)
}

func TestPIDsLimitStopsAForkBomb(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	g := started(t, Limits{PIDs: 60}, Options{})
	b := newChild(t, g, "fork 400", nil).begin()
	if s := b.line(); !strings.HasPrefix(s, "refused ") {
		t.Error("a fork bomb:", s)
	}
	c := hitBy(t, g, PartPIDs)
	if c.Killed || c.Text != "processes: all 60 in use, one more was refused" {
		t.Errorf("%+v", c)
	}
	u, err := g.Usage()
	must(t, err)
	if u.PIDs.Value < 55 || u.PIDs.Value > 60 {
		t.Errorf("%+v", u.PIDs)
	}
	closes(t, g)
}

func TestCPULimit(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	g := started(t, Limits{CPUs: 0.2}, Options{})
	newChild(t, g, "spin", nil).begin()
	const most = 0.26
	share := measureShare(t, g, time.Second, most)
	if share < 0.02 || share > most {
		t.Errorf("%.2f processors, want 0.2", share)
	}
	u, err := g.Usage()
	must(t, err)
	if !u.Throttled.OK || u.Throttled.Value <= 0 && share > 0.19 { // a busy machine may have given less than the limit
		t.Errorf("throttled %+v", u.Throttled)
	}
	closes(t, g)
}

// measureShare returns how many processors the container gets, after a moment. If that is more than most it
// measures longer: a loaded or emulated machine pays excess back late.
func measureShare(t *testing.T, g *Group, over time.Duration, most float64) float64 {
	t.Helper()
	time.Sleep(200 * time.Millisecond)
	before, err := g.Usage()
	must(t, err)
	for start := time.Now(); ; {
		time.Sleep(over)
		now, err := g.Usage()
		must(t, err)
		took := time.Since(start)
		if share := float64(now.CPUTime.Value-before.CPUTime.Value) / float64(took); share <= most || took > slow(over) {
			return share
		}
	}
}

func TestCPUTimeLimit(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	const limit = 300 * time.Millisecond
	g := started(t, Limits{CPUTime: limit}, Options{})
	late := lateness(t)
	b := newChild(t, g, "spin", nil).begin()
	c := hitBy(t, g, PartCPUTime)
	if !c.Killed || c.Text != "processor time: 300ms used up" {
		t.Errorf("%+v", c)
	}
	b.ends()
	u, err := g.Usage()
	must(t, err)
	// 10 ms, and the time that a loaded machine takes to run the watcher and to end the processes.
	most := limit + 20*time.Millisecond + 4*late()
	if u.CPUTime.Value < limit || u.CPUTime.Value > most {
		t.Errorf("used %v of %v, at most %v", u.CPUTime.Value, limit, most)
	}
	t.Log("used", u.CPUTime.Value, "of", limit, "and at most", most)
	closes(t, g)
}

// A container that failed to start may be started again in the same group.
func TestProcessStartedAfterTheCPUTimeLimitIsKilled(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	g := started(t, Limits{CPUTime: 10 * time.Millisecond}, Options{})
	newChild(t, g, "spin", nil).begin().ends()
	none := started(t, Limits{}, Options{})
	later := newChild(t, none, "spin", nil)
	for _, dir := range g.Cgroups() {
		must(t, vfs.WriteFile(dir.Name()+"/cgroup.procs", strconv.Itoa(later.cmd.Process.Pid)))
	}
	later.begin().ends()
	closes(t, none)
	closes(t, g)
}

// lateness measures how late this process is scheduled, until the returned function asks for the worst case.
func lateness(t *testing.T) func() time.Duration {
	worst, stop := make(chan time.Duration), make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(stop) }))
	go func() {
		late := time.Duration(0)
		for {
			select {
			case <-stop:
				return
			case worst <- late:
				return
			default:
			}
			start := time.Now()
			time.Sleep(time.Millisecond)
			late = max(late, time.Since(start)-time.Millisecond)
		}
	}()
	return func() time.Duration { return <-worst }
}

func TestSetOnALiveGroup(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	g := started(t, Limits{PIDs: 60, Memory: 256 << 20}, Options{})
	b := newChild(t, g, "hog 40000000", nil).begin()
	b.line()
	must(t, g.Set(t.Context(), Limits{PIDs: 80, Memory: 128 << 20, CPUs: 0.5}))
	must(t, g.Set(t.Context(), Limits{PIDs: 90, Memory: 512 << 20, CPUs: 0.7}))
	must(t, g.Set(t.Context(), Limits{PIDs: 90}))
	if l := g.Level(); len(l) != 1 || l[0].Part != PartPIDs || l[0].Value != "90" {
		t.Errorf("%+v", l)
	}
	// Less memory than is in use: an error that names the limit, and no change.
	err := g.Set(t.Context(), Limits{PIDs: 70, Memory: 16 << 20})
	if !errors.Is(err, errs.ErrBusy) || !strings.Contains(err.Error(), "memory") {
		t.Error(err)
	}
	if text, err := g.find("pids").read("pids.max"); err != nil || string(text) != "90\n" {
		t.Errorf("pids.max is %q %v", text, err)
	}
	if err := g.Set(t.Context(), Limits{Files: 100}); !errors.Is(err, errs.ErrNotSupported) || !strings.Contains(err.Error(), "files") {
		t.Error(err)
	}
	if c, ok := g.LimitHit(); ok {
		t.Errorf("hit: %+v", c)
	}
	closes(t, g)
	if err := g.Set(t.Context(), Limits{PIDs: 1000}); !errors.Is(err, errs.ErrClosed) {
		t.Error(err)
	}
}

func TestAttachRefusesAProcessOutsideItsCgroups(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	g := started(t, Limits{PIDs: 60}, Options{})
	if err := g.Attach(os.Getpid()); !errors.Is(err, errs.ErrInvalid) {
		t.Error(err)
	}
	closes(t, g)
}

func TestOneGroupForEachID(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	g := started(t, Limits{PIDs: 60}, Options{})
	if _, err := Start(t.Context(), "sandbox", Limits{PIDs: 70}, Options{}); !errors.Is(err, errs.ErrBusy) {
		t.Error(err)
	}
	if text, err := g.find("pids").read("pids.max"); err != nil || string(text) != "60\n" {
		t.Errorf("pids.max is %q %v", text, err)
	}
	for _, id := range []string{"", "a/b", "..a/", "a b", strings.Repeat("a", 200)} {
		if _, err := Start(t.Context(), id, Limits{PIDs: 70}, Options{}); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%q: %v", id, err)
		}
	}
	closes(t, g)
}

func TestCheckRefusesInvalidLimits(t *testing.T) {
	for want, l := range map[string]Limits{
		"cpus": {CPUs: -1}, "cpus: NaN": {CPUs: math.NaN()}, "cpus: 0.001": {CPUs: 0.001}, "cpus: +Inf": {CPUs: math.Inf(1)},
		"memory": {Memory: 1000}, "memory: -": {Memory: -1}, "pids": {PIDs: 1}, "pids: -1": {PIDs: -1}, "cpu-time": {CPUTime: -1},
		"files": {Files: 1}, "io-read": {ReadRate: -1}, "io-write": {WriteRate: -1}, "io-read-ops": {ReadOps: -1}, "io-write-ops": {WriteOps: -1},
	} {
		err := l.Check()
		if !errors.Is(err, errs.ErrInvalid) || !strings.HasPrefix(err.Error(), "limiting "+want) {
			t.Errorf("%s: %v", want, err)
		}
		if _, again := Start(t.Context(), "sandbox", l, Options{BestEffort: true}); again == nil {
			t.Error("started with", l)
		}
	}
	must(t, Limits{CPUs: 0.01, Memory: 1 << 20, PIDs: 2, ReadRate: 1, WriteOps: 1, CPUTime: 1, Files: 8}.Check())
}

// Version 1 stores 32 bits.
func TestOperationsAbove32BitsAreNoLimit(t *testing.T) {
	g := &Group{members: []*member{{version: 1, controllers: []string{"blkio"}}}, disks: []uint64{0x800}}
	for _, n := range []int64{1 << 32, 5<<32 + 1, units.MaxCount} {
		for _, k := range g.settings(Limits{ReadOps: n, WriteOps: n}) {
			if k.value != "8:0 0" {
				t.Errorf("%d: %s = %s", n, k.file, k.value)
			}
		}
	}
}

func TestFilesLimit(t *testing.T) {
	treetest.Leaks(t)
	g := started(t, Limits{Files: 50}, Options{})
	b := newChild(t, g, "open", nil).begin()
	if s := b.line(); !strings.HasPrefix(s, "refused ") || !strings.Contains(s, "too many open files") {
		t.Error(s)
	}
	if by := held(g, PartFiles); by != ByRlimit {
		t.Error(by)
	}
	closes(t, g)
}

func TestLimitsAboveTheHostsAreMoot(t *testing.T) {
	g := started(t, Limits{Files: 1 << 35, Memory: 1 << 50, PIDs: units.MaxCount}, Options{})
	for _, h := range g.Level() {
		if !h.Moot || !strings.Contains(h.Note, "no effect here") {
			t.Errorf("%+v", h)
		}
	}
	for _, r := range g.Rlimits() {
		if r.Resource == unix.RLIMIT_NOFILE {
			t.Errorf("%+v", r)
		}
	}
	closes(t, g)
}

// TestFailedStepLeavesNothing: Start and Set with any one step failing leave nothing, or the previous limits.
func TestFailedStepLeavesNothing(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	broken := errors.New("broken on purpose")
	all := Limits{CPUs: 1, Memory: 64 << 20, PIDs: 50}
	for fails := 1; ; fails++ {
		n := 0
		ctx := treetest.WithFaults(t.Context(), func(string) error {
			if n++; n == fails {
				return broken
			}
			return nil
		})
		g, err := Start(ctx, "sandbox", all, Options{})
		if err == nil {
			must(t, g.Close(t.Context()))
			if fails < 5 {
				t.Error("there are hardly any steps")
			}
			break
		}
		if !errors.Is(err, broken) {
			t.Error(err)
		}
		if left := marked(t); len(left) > 0 {
			t.Fatal("left:", left)
		}
	}
	g := started(t, all, Options{})
	ctx := treetest.WithFaults(t.Context(), func(what string) error {
		if what == "limit pids" {
			return broken
		}
		return nil
	})
	if err := g.Set(ctx, Limits{CPUs: 0.5, Memory: 128 << 20, PIDs: 70}); !errors.Is(err, broken) || !strings.Contains(err.Error(), "pids") {
		t.Error(err)
	}
	for i, k := range g.settings(all) {
		text, err := k.m.read(k.file)
		if err == nil && !strings.HasPrefix(string(text), k.value) {
			t.Errorf("%d: %s is %q, was %q", i, k.file, text, k.value)
		}
	}
	closes(t, g)
}

// marked lists the groups of this process.
func marked(t *testing.T) []string {
	t.Helper()
	found, err := hierarchies()
	must(t, err)
	var list []string
	for _, h := range found {
		groups(h.mount, func(path string, k groupName) {
			if k.owner.PID == os.Getpid() {
				list = append(list, path)
			}
		})
	}
	return list
}

// TestCountWithoutALimit: limits can be set later, and an unknown value is not 0.
func TestCountWithoutALimit(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	g := started(t, Limits{}, Options{Count: true})
	b := newChild(t, g, "fork 400", nil)
	must(t, g.Set(t.Context(), Limits{PIDs: 60}))
	b.begin()
	hitBy(t, g, PartPIDs)
	u, err := g.Usage()
	must(t, err)
	if !u.Memory.OK || !u.CPUTime.OK || !u.PIDs.OK {
		t.Errorf("%+v", u)
	}
	if _, err := os.Stat("/proc/pressure/cpu"); (err == nil) != u.PressureCPU.OK {
		t.Errorf("pressure: %+v, and the host: %v", u.PressureCPU, err)
	}
	text, err := json.Marshal(struct{ A, B Known[int64] }{A: known[int64](0, true)})
	if err != nil || string(text) != `{"A":0,"B":null}` {
		t.Error(string(text), err)
	}
	closes(t, g)
}

func TestCloseNamesLiveProcesses(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	g := started(t, Limits{PIDs: 60}, Options{})
	b := newChild(t, g, "sleep", nil).begin()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := g.Close(ctx)
	if !errors.Is(err, errs.ErrBusy) || !strings.Contains(err.Error(), fmt.Sprint(b.cmd.Process.Pid)) {
		t.Error(err)
	}
	must(t, b.cmd.Process.Kill())
	b.ends()
	must(t, g.Close(t.Context()))
}

func BenchmarkStartAndClose(b *testing.B) {
	treetest.NeedRoot(b)
	all := Limits{CPUs: 1, Memory: 64 << 20, PIDs: 50, CPUTime: time.Hour, Files: 100}
	for b.Loop() {
		g, err := Start(b.Context(), "sandbox", all, Options{})
		must(b, err)
		must(b, g.Close(b.Context()))
	}
}
