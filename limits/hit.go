//go:build linux

package limits

import (
	"slices"
	"time"

	"github.com/snapfs/snapfs/internal/units"
)

// newLimitHit returns the description, for the user, of the limit part that was hit. The limit's value is
// taken from l.
func newLimitHit(part Part, l Limits) LimitHit {
	c := LimitHit{Part: part}
	for _, a := range l.entries() {
		if a.part == part {
			c.Value = a.text
		}
	}
	switch part {
	case PartMemory:
		c.Text, c.Killed = "memory: "+units.SizeText(l.Memory)+" used up", true
	case PartPIDs:
		c.Text = "processes: all " + c.Value + " in use, one more was refused"
	case PartCPUTime:
		c.Text, c.Killed = "processor time: "+c.Value+" used up", true
	}
	return c
}

// A counts records which limits of a container were hit, and the kernel's counters at the last check.
// Group.mu guards it.
type counts struct {
	hits           []LimitHit
	reported       []Part
	ooms, refusals int64         // the kernel's counters at the last check
	kill           bool          // the container must be killed, and is not yet
	peak           int64         // of memory, if this process measures it
	throttled      time.Duration // of processors, likewise
	computed       time.Duration // likewise
	cost           time.Duration // duration of the last check of all processes
}

// forget clears which limits were already reported as hit, so that the next hit of each is reported again. It
// is called when the limits have changed.
func (t *counts) forget() { t.reported = nil }

// hit records that the limit part was hit: only the first time, until the limits change. If the limit kills
// the container, processes that start afterwards are killed too.
func (g *Group) hit(part Part) {
	c := newLimitHit(part, g.l)
	g.counts.kill = g.counts.kill || c.Killed
	if slices.Contains(g.counts.reported, part) {
		return
	}
	if part == PartPIDs && g.find("pids") == nil {
		c.Text = "processes: all " + c.Value + " in use" // RLIMIT_NPROC does not report refusals
	}
	g.counts.reported = append(g.counts.reported, part)
	g.counts.hits = append(g.counts.hits, c)
}

// LimitHit returns the limit that the container was killed for, or else the last limit that its processes
// hit; false if none. It first reads the kernel's counters.
func (g *Group) LimitHit() (LimitHit, bool) {
	g.life.RLock()
	defer g.life.RUnlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.check()
	}
	if g.counts.kill {
		g.watcher.poke()
	}
	hits := g.counts.hits
	if len(hits) == 0 {
		return LimitHit{}, false
	}
	if i := slices.IndexFunc(hits, func(c LimitHit) bool { return c.Killed }); i >= 0 {
		return hits[i], true
	}
	return hits[len(hits)-1], true
}

// check reads the kernel's counters and records the limits that were hit since the last check. The caller
// holds mu.
func (g *Group) check() {
	if m := g.find("memory"); m != nil && g.l.Memory != 0 && g.outOfMemory(m) {
		g.hit(PartMemory)
	}
	if m := g.find("pids"); m != nil && g.l.PIDs != 0 {
		n, _ := m.field("pids.events", "max")
		// The kernel also counts refusals by a group above here, before Linux 6.11 and with cgroup version 1. It updates
		// the peak without a lock: of processes that start at once, on each processor one, the last to write may be too low.
		slack := min(4, g.l.PIDs/8)
		peak, known := m.number("pids.peak")
		if n > g.counts.refusals && (!known || peak >= g.l.PIDs-slack) {
			g.hit(PartPIDs)
		}
		g.counts.refusals = n
	}
	if g.l.CPUTime != 0 {
		if used, ok := g.cpuTime(); ok && used >= g.l.CPUTime {
			g.hit(PartCPUTime)
		}
	}
	g.checkWatched()
}

// outOfMemory reports whether the kernel killed a process because the control group m itself, not a group
// above it or the host, was out of memory.
func (g *Group) outOfMemory(m *member) bool {
	var killed int64
	var own bool
	if m.version == 2 {
		killed, _ = m.field("memory.events", "oom_kill")
		ooms, _ := m.field("memory.events", "oom") // counted at the group with the limit, and above
		own = ooms > 0
	} else {
		killed, _ = m.field("memory.oom_control", "oom_kill")
		own = m.reached("memory.", g.l.Memory) || m.reached("memory.memsw.", g.l.Memory)
	}
	more := killed > g.counts.ooms
	g.counts.ooms = killed
	return own && more
}

// reached reports whether a memory counter of cgroup version 1, whose files begin with counter (such as
// "memory."), was ever at limit, its limit in bytes. The kernel's counter of refusals, failcnt, does not work
// on some kernels.
func (m *member) reached(counter string, limit int64) bool {
	const slack = 1 << 20 // the kernel charges in batches
	peak, ok := m.number(counter + "max_usage_in_bytes")
	return ok && peak >= limit-slack
}
