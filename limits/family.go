//go:build linux

package limits

import (
	"context"
	"slices"
	"time"
)

// A meter holds processors by stopping and continuing the box, for where no
// control group does: what it was given grows with the time, what it computes is
// taken off, and while that is below nothing, it stands still. The watcher's
// goroutine alone uses it.
type meter struct {
	last    time.Time     // of the last look
	used    time.Duration // by then
	credit  time.Duration
	busy    bool // it has computed since the look before
	until   time.Time
	stopped bool
}

// The times of a meter.
const (
	window   = 100 * time.Millisecond // what may be saved up lasts so long
	busyLook = 10 * time.Millisecond  // as exact as /proc/PID/stat is
)

// turn brings the meter up to date and says whether the box is to stand still,
// and when to look again.
func (m *meter) turn(now time.Time, used time.Duration, cpus float64) (stop bool, wait time.Duration) {
	if m.last.IsZero() {
		m.last, m.used, m.credit = now, used, time.Duration(cpus*float64(window))
		return false, busyLook
	}
	given := time.Duration(cpus * float64(now.Sub(m.last)))
	spent := used - m.used
	m.credit = min(m.credit+given-spent, time.Duration(cpus*float64(window)))
	m.last, m.used, m.busy = now, used, spent > 0
	switch {
	case m.credit < 0:
		return true, max(time.Duration(float64(-m.credit)/cpus), time.Millisecond)
	case m.busy:
		return false, busyLook
	}
	return false, watchEvery
}

// metered reports whether processors are held by a meter. The caller holds mu.
func (g *Group) metered() bool {
	return g.pid != 0 && g.l.CPUs != 0 && g.find("cpu") == nil && g.o.Pause != nil && g.o.Resume != nil
}

// hold stops or continues the box as its meter says, and answers when to look
// again, or 0. A box that cannot be stopped computes on, and is tried again. The
// caller holds life.
func (g *Group) hold(ctx context.Context) time.Duration {
	m := &g.watcher.meter
	g.mu.Lock()
	metered, cpus := g.metered(), g.l.CPUs
	used, ok := time.Duration(0), false
	if metered {
		used, ok = g.cpuTime()
	}
	least := thrift * g.tally.cost
	g.mu.Unlock()
	if !metered || !ok {
		if m.stopped && g.o.Resume(ctx) == nil {
			*m = meter{}
		}
		return 0
	}
	now := time.Now()
	if m.stopped && now.Before(m.until) {
		return m.until.Sub(now)
	}
	stop, wait := m.turn(now, used, cpus)
	switch {
	case stop && !m.stopped:
		m.stopped = g.o.Pause(ctx) == nil
	case !stop && m.stopped:
		m.stopped = g.o.Resume(ctx) != nil
	}
	if m.stopped {
		m.until = now.Add(wait)
		g.mu.Lock()
		g.tally.throttled += wait
		g.mu.Unlock()
	}
	return max(wait, least)
}

// release lets the box go on, in the end.
func (g *Group) release() {
	if g.watcher.meter.stopped {
		_ = g.o.Resume(context.Background()) // it is closed: its processes have ended, or their owner knows
		g.watcher.meter.stopped = false
	}
}

// examineWatched looks at the memory, and the processes, that no control group counts.
func (g *Group) examineWatched() {
	memory, pids := g.watched()
	if !memory && !pids {
		return
	}
	start := time.Now()
	if memory {
		used := familyMemory(family(g.pid), g.l.Memory)
		g.tally.peak = max(g.tally.peak, used)
		if used > g.l.Memory {
			g.hit(PartMemory)
		}
	}
	// The kernel refuses one more and tells nobody (RLIMIT_NPROC): what is seen is that
	// all are there.
	if pids && threadsOf(family(g.pid)) >= g.l.PIDs {
		g.hit(PartPIDs)
	}
	g.tally.cost = time.Since(start)
}

// Left is to be called when a process of the box has ended without success, before the
// others are ended. Where no control group tells of the processes that were refused, it
// looks whether all that may be there were, the one that has left among them: it may have
// met its limit between two looks.
func (g *Group) Left() {
	g.life.RLock()
	defer g.life.RUnlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	if _, pids := g.watched(); pids && threadsOf(family(g.pid))+1 >= g.l.PIDs {
		g.hit(PartPIDs)
	}
}

// watched says of which limits no control group tells that they were hit. The caller
// holds mu.
func (g *Group) watched() (memory, pids bool) {
	if g.pid == 0 {
		return false, false
	}
	return g.l.Memory != 0 && g.find("memory") == nil,
		g.l.PIDs != 0 && g.find("pids") == nil && !slices.Contains(g.tally.told, PartPIDs)
}

// nextWatched is when to look again at what is watched, or 0: later, where there is
// much to look at.
func (g *Group) nextWatched() time.Duration {
	if memory, pids := g.watched(); !memory && !pids {
		return 0
	}
	return max(watchEvery, thrift*g.tally.cost)
}

// usageWatched counts what no control group does.
func (g *Group) usageWatched(u *Usage) {
	if g.pid == 0 || u.Memory.OK && u.PIDs.OK {
		return
	}
	pids := family(g.pid)
	if !u.PIDs.OK {
		u.PIDs = known(threadsOf(pids), true)
	}
	if !u.Memory.OK {
		u.Memory = known(familyMemory(pids, 0), true)
		if g.l.Memory != 0 { // it was looked at all the time
			g.tally.peak = max(g.tally.peak, u.Memory.Value)
			u.MemoryPeak = known(g.tally.peak, true)
		}
	}
	if g.metered() {
		u.Throttled = known(g.tally.throttled, true)
	}
}
