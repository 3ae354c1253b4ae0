//go:build linux

package prove

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	burning  = 2 * time.Second // duration of a measurement
	overtime = time.Second     // how far a probe exceeds a time limit
	slack    = 1.15            // tolerance of a measured rate: the kernel enforces it per tenth of a second
	coarse   = 0.05            // further tolerance of processors: a watcher checks every 50 ms
	near     = 0.7             // the least share of the limit that shows that the limit was effective
)

func rateProbes() []Probe {
	return []Probe{
		{Name: "cpus", Args: []string{"PROCESSORS"}, plan: planCPUs},
		{Name: "cpu-time", Args: []string{"DURATION"}, Kills: true, plan: planCPUTime},
		{Name: "time", Args: []string{"DURATION"}, Kills: true, plan: planTime},
		{Name: "write-rate", Args: []string{"BYTES-PER-SECOND", "DIR"}, plan: planRate(true, false)},
		{Name: "read-rate", Args: []string{"BYTES-PER-SECOND", "DIR"}, plan: planRate(false, false)},
		{Name: "write-ops", Args: []string{"WRITES-PER-SECOND", "DIR"}, plan: planRate(true, true)},
		{Name: "read-ops", Args: []string{"READS-PER-SECOND", "DIR"}, plan: planRate(false, true)},
	}
}

func planCPUs(args []string) (attempt, error) {
	limit, err := strconv.ParseFloat(args[0], 64)
	if err == nil && !(limit > 0) {
		err = fmt.Errorf("%q is no number above zero", args[0])
	}
	return attempt{fmt.Sprintf("use more than %g processors for %v", limit, burning), func() outcome { return cpus(limit) }}, err
}

func cpus(limit float64) outcome {
	if all := runtime.NumCPU(); float64(all) <= limit {
		return untried("this machine has %d processors, and the limit is %g", all, limit)
	}
	idle, err := idleTime()
	if err != nil {
		return untried("%v", err)
	}
	before, began := cpuTime(), time.Now()
	stop := burn()
	time.Sleep(burning)
	stop()
	took := time.Since(began).Seconds()
	used := (cpuTime() - before).Seconds() / took
	after, err := idleTime()
	if err != nil {
		return untried("%v", err)
	}
	free := (after - idle).Seconds() / took
	switch what := fmt.Sprintf("%.2f processors were used and %.2f idle", used, free); {
	case used > limit*slack+coarse:
		return crossed("%s", what)
	case used+free <= limit*slack+coarse: // other programs may have left no more
		o := untried("the machine is busy: %s", what)
		o.busy = true
		return o
	default:
		return held("%s", what)
	}
}

// idleTime returns the total time since boot in which the machine's processors were idle (proc_stat(5)). It
// tells why a probe got little processor time: a limit leaves processors idle, competing programs do not.
func idleTime() (time.Duration, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	fields := strings.Fields(line)
	if len(fields) < 6 {
		return 0, errors.New("/proc/stat has no idle times")
	}
	var ticks int64
	for _, f := range fields[4:6] { // idle, and waiting for a disk
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100, nil // USER_HZ, on both architectures
}

// burn keeps every processor busy until the caller calls stop, for probes of the processor limits.
func burn() (stop func()) {
	var ended atomic.Bool
	for range runtime.NumCPU() {
		go func() {
			for x := uint64(1); !ended.Load(); x *= 3 {
				runtime.KeepAlive(x)
			}
		}()
	}
	return func() { ended.Store(true) }
}

// cpuTime returns the processor time that this process has used, user and system; 0 if it cannot be read.
func cpuTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil && d <= 0 {
		err = fmt.Errorf("%q is no duration above zero", text)
	}
	return d, err
}

func planCPUTime(args []string) (attempt, error) {
	limit, err := duration(args[0])
	return attempt{fmt.Sprintf("compute for %v", limit+overtime), func() outcome { return budget(limit) }}, err
}

// budget is a probe that uses more processor time than limit, which a working limit ends by killing it. If
// this process is delayed for too long, the attempt counts as not made.
func budget(limit time.Duration) outcome {
	stop := burn()
	defer stop()
	for end := time.Now().Add(20 * (limit + overtime)); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if used := cpuTime(); used >= limit+overtime {
			return crossed("it used %v of CPU time and continues", used.Round(time.Millisecond))
		}
	}
	return untried("in %v it got only %v of CPU time", 20*(limit+overtime), cpuTime().Round(time.Millisecond))
}

func planTime(args []string) (attempt, error) {
	limit, err := duration(args[0])
	return attempt{fmt.Sprintf("still run after %v", limit+overtime), func() outcome {
		time.Sleep(limit + overtime)
		return crossed("it still runs")
	}}, err
}

// planRate returns a function that plans a probe which tries to exceed a disk rate: args[0] reads (with
// write: writes) per second in the directory args[1], counted in operations if often is set, else in bytes.
func planRate(write, often bool) func([]string) (attempt, error) {
	return func(args []string) (attempt, error) {
		limit, err := number(args[0])
		verb, what := "read", "bytes"
		if write {
			verb = "write"
		}
		if often {
			what = "times"
		}
		tried := fmt.Sprintf("%s more than %d %s a second in %s", verb, limit, what, args[1])
		return attempt{tried, func() outcome { return rate(limit, args[1], write, often) }}, err
	}
}

// rate is a probe that reads (with write: writes) one piece of a file in dir again and again, past the page cache,
// and compares the rate per second, in operations if often is set, else in bytes, with limit.
func rate(limit int64, dir string, write, often bool) outcome {
	f, err := os.CreateTemp(dir, "prove-")
	if err != nil {
		return untried("%v", err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // a leftover is in the sandbox
	defer f.Close()
	piece, each := int64(4096), int64(1)
	if !often {
		piece = min(1<<20, max(4096, limit/16&^4095))
		each = piece
	}
	buf, err := unix.Mmap(-1, 0, int(piece), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS) // page-aligned
	if err != nil {
		return untried("%v", err)
	}
	defer unix.Munmap(buf) //nolint:errcheck // the kernel gave it
	act := f.WriteAt
	if !write {
		act = f.ReadAt
		if _, err := f.Write(buf); err != nil {
			return untried("%v", err)
		}
		if err := f.Sync(); err != nil {
			return untried("%v", err)
		}
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFL, unix.O_DIRECT); err != nil {
		return untried("%s does not support direct I/O: %v", dir, err)
	}
	began, done := time.Now(), int64(0)
	for time.Since(began) < burning && done < 4*limit*int64(burning/time.Second) {
		if _, err := act(buf, 0); err != nil {
			return untried("after %d: %v", done, err)
		}
		done += each
	}
	got := float64(done) / time.Since(began).Seconds()
	what := fmt.Sprintf("it reached %.0f a second", got)
	switch {
	case got > float64(limit)*slack:
		return crossed("%s", what)
	case got < float64(limit)*near: // the disk may be no faster
		return untried("the disk is slow: %s", what)
	}
	return held("%s", what)
}
