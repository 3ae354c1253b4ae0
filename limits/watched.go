//go:build linux

package limits

import (
	"context"
	"slices"
	"time"
)

// A throttler limits processors without a control group, by pausing and resuming the
// container. Its credit grows with time and shrinks with the CPU time that the processes use;
// while the credit is negative, the container is paused. Only the watcher's goroutine uses it.
type throttler struct {
	last    time.Time     // of the last update
	used    time.Duration // CPU time at the last update
	credit  time.Duration
	busy    bool // CPU time was used since the update before
	until   time.Time
	stopped bool
}

// Intervals and bounds of a [throttler], which limits processors without a control group, by pausing the
// container.
const (
	burst    = 100 * time.Millisecond // the longest time that unused credit accumulates for
	busyPoll = 10 * time.Millisecond  // the resolution of /proc/PID/stat
)

// update adjusts the credit of CPU time to used, the CPU time of all processes until now, and to a limit of
// cpus processors. It returns whether the container must be paused, and after which time to call update
// again.
func (m *throttler) update(now time.Time, used time.Duration, cpus float64) (stop bool, wait time.Duration) {
	if m.last.IsZero() {
		m.last, m.used, m.credit = now, used, time.Duration(cpus*float64(burst))
		return false, busyPoll
	}
	given := time.Duration(cpus * float64(now.Sub(m.last)))
	spent := used - m.used
	m.credit = min(m.credit+given-spent, time.Duration(cpus*float64(burst)))
	m.last, m.used, m.busy = now, used, spent > 0
	switch {
	case m.credit < 0:
		return true, max(time.Duration(float64(-m.credit)/cpus), time.Millisecond)
	case m.busy:
		return false, busyPoll
	}
	return false, pollInterval
}

// throttled reports whether a throttler, not a control group, limits the container's processors. The caller
// holds mu.
func (g *Group) throttled() bool {
	return g.pid != 0 && g.l.CPUs != 0 && g.find("cpu") == nil && g.o.Pause != nil && g.o.Resume != nil
}

// throttle pauses or resumes the container as its throttler says, to limit its processors. It returns after
// which time to call throttle again, or 0. If pausing fails, the next call tries again. The caller holds the
// mutex life.
func (g *Group) throttle(ctx context.Context) time.Duration {
	m := &g.watcher.throttler
	g.mu.Lock()
	metered, cpus := g.throttled(), g.l.CPUs
	used, ok := time.Duration(0), false
	if metered {
		used, ok = g.cpuTime()
	}
	least := costFactor * g.counts.cost
	g.mu.Unlock()
	if !metered || !ok {
		if m.stopped && g.o.Resume(ctx) == nil {
			*m = throttler{}
		}
		return 0
	}
	now := time.Now()
	if m.stopped && now.Before(m.until) {
		return m.until.Sub(now)
	}
	stop, wait := m.update(now, used, cpus)
	switch {
	case stop && !m.stopped:
		m.stopped = g.o.Pause(ctx) == nil
	case !stop && m.stopped:
		m.stopped = g.o.Resume(ctx) != nil
	}
	if m.stopped {
		m.until = now.Add(wait)
		g.mu.Lock()
		g.counts.throttled += wait
		g.mu.Unlock()
	}
	return max(wait, least)
}

// resume lets a container continue that the throttler has paused to limit its processors. It is called before
// the group is closed or killed.
func (g *Group) resume() {
	if g.watcher.throttler.stopped {
		_ = g.o.Resume(context.Background()) // after Close the processes have ended, or their owner handles them
		g.watcher.throttler.stopped = false
	}
}

// checkWatched measures the memory and the processes of the container where no control group counts them, and
// records a limit that is exceeded or reached.
func (g *Group) checkWatched() {
	memory, pids := g.watched()
	if !memory && !pids {
		return
	}
	start := time.Now()
	if memory {
		used := g.memory(descendants(g.pid), g.l.Memory)
		g.counts.peak = max(g.counts.peak, used)
		if used > g.l.Memory {
			g.hit(PartMemory)
		}
	}
	// RLIMIT_NPROC does not report refusals: the check only sees that the limit is reached.
	if pids && threadsOf(descendants(g.pid)) >= g.l.PIDs {
		g.hit(PartPIDs)
	}
	g.counts.cost = time.Since(start)
}

// memory returns how many bytes of memory the processes pids of the container use, together with the files
// that they have in memory: in the container's own /tmp, /dev/shm and /run, or by memfd_create(2). A part of
// such a file that a process maps counts twice; only if the sum exceeds limit, memory corrects that, which is
// expensive.
func (g *Group) memory(pids []int, limit int64) int64 {
	stored, devices := memfdsOf(pids), []uint64(nil)
	if g.o.Stored != nil {
		files, own := g.o.Stored()
		stored, devices = stored+files, own
	}
	used := memoryOf(pids, max(limit-stored, 0)) + stored
	if limit != 0 && used > limit && stored > 0 {
		used -= min(stored, mappedOf(pids, devices))
	}
	return used
}

// ProcessFailed must be called when a process of the container has ended with an error, before the others are
// ended. If no control group counts processes, it checks whether the limit of processes was reached: the
// process may have hit it between two checks.
func (g *Group) ProcessFailed() {
	g.life.RLock()
	defer g.life.RUnlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	if _, pids := g.watched(); pids && threadsOf(descendants(g.pid))+1 >= g.l.PIDs {
		g.hit(PartPIDs)
	}
}

// watched reports, for the limits of memory and of processes, whether no control group counts the resource,
// so that only a repeated measurement by snapfs can find that the limit is hit. The caller holds mu.
func (g *Group) watched() (memory, pids bool) {
	if g.pid == 0 {
		return false, false
	}
	return g.l.Memory != 0 && g.find("memory") == nil,
		g.l.PIDs != 0 && g.find("pids") == nil && !slices.Contains(g.counts.reported, PartPIDs)
}

// nextWatched returns after which time snapfs must measure the container again, to enforce limits that the
// kernel does not, or 0 if there are none. The interval grows with the cost of a measurement.
func (g *Group) nextWatched() time.Duration {
	if memory, pids := g.watched(); !memory && !pids {
		return 0
	}
	return max(pollInterval, costFactor*g.counts.cost)
}

// usageWatched measures the resources that no control group counts and puts them into u. It reads them from
// /proc for each process of the container.
func (g *Group) usageWatched(u *Usage) {
	if g.pid == 0 || u.Memory.OK && u.PIDs.OK {
		return
	}
	pids := descendants(g.pid)
	if !u.PIDs.OK {
		u.PIDs = known(threadsOf(pids), true)
	}
	if !u.Memory.OK {
		u.Memory = known(g.memory(pids, 0), true)
		if g.l.Memory != 0 { // the watcher measured it all the time
			g.counts.peak = max(g.counts.peak, u.Memory.Value)
			u.MemoryPeak = known(g.counts.peak, true)
		}
	}
	if g.throttled() {
		u.Throttled = known(g.counts.throttled, true)
	}
}
