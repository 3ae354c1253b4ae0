//go:build linux

package limits

import (
	"slices"
	"time"

	"github.com/snapfs/snapfs/internal/units"
)

// causeOf makes the sentence about a limit that was hit.
func causeOf(part Part, l Limits) Cause {
	c := Cause{Part: part}
	for _, a := range l.asked() {
		if a.part == part {
			c.Value = a.text
		}
	}
	switch part {
	case PartMemory:
		c.Text, c.Killed = "memory: "+units.SizeText(l.Memory)+" used up", true
		c.Change = "allow more memory than " + c.Value + ", or let the command use less at a time"
	case PartPIDs:
		c.Text = "processes: all " + c.Value + " in use, one more was refused"
		c.Change = "allow more processes and threads than " + c.Value + ", or let the command start fewer at a time"
	case PartCPUTime:
		c.Text, c.Killed = "processor time: "+c.Value+" used up", true
		c.Change = "allow more processor time than " + c.Value
	}
	return c
}

// tally is what was seen of the limits that were hit. The group's lock guards it.
type tally struct {
	hits           []Cause
	told           []Part
	ooms, refusals int64         // what the kernel had counted at the last look
	kill           bool          // the box is to be killed, and is not yet
	peak           int64         // of memory, where this process counts it
	throttled      time.Duration // of processors, likewise
	computed       time.Duration // likewise
	cost           time.Duration // of the last look at all processes
}

// forget makes room for the next hit: the limits are others now.
func (t *tally) forget() { t.told = nil }

// hit notes a limit that was hit; once, until the limits are set anew. What begins in
// the box after it was killed is killed too.
func (g *Group) hit(part Part) {
	c := causeOf(part, g.l)
	g.tally.kill = g.tally.kill || c.Killed
	if slices.Contains(g.tally.told, part) {
		return
	}
	if part == PartPIDs && g.find("pids") == nil {
		c.Text = "processes: all " + c.Value + " in use" // whether one more was asked for, nobody knows
	}
	g.tally.told = append(g.tally.told, part)
	g.tally.hits = append(g.tally.hits, c)
	g.watcher.tell(c)
}

// Hit answers with the limit that the box was killed for, else with the last that
// was hit. It looks anew: what the kernel has counted by now is told.
func (g *Group) Hit() (Cause, bool) {
	g.life.RLock()
	defer g.life.RUnlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.examine()
	}
	if g.tally.kill {
		g.watcher.poke()
	}
	hits := g.tally.hits
	if len(hits) == 0 {
		return Cause{}, false
	}
	if i := slices.IndexFunc(hits, func(c Cause) bool { return c.Killed }); i >= 0 {
		return hits[i], true
	}
	return hits[len(hits)-1], true
}

// Events tells of each limit when it is hit, once until [Group.Set] changes
// them. Nothing is lost when nobody reads: up to sixteen wait, and [Group.Hit]
// knows all. It is closed by [Group.Close].
func (g *Group) Events() <-chan Cause { return g.watcher.events }

// examine looks whether a limit was hit.
func (g *Group) examine() {
	if m := g.find("memory"); m != nil && g.l.Memory != 0 && g.outOfMemory(m) {
		g.hit(PartMemory)
	}
	if m := g.find("pids"); m != nil && g.l.PIDs != 0 {
		n, _ := m.field("pids.events", "max")
		// Before Linux 6.11 a refusal by a group above is counted here too.
		peak, known := m.number("pids.peak")
		if n > g.tally.refusals && (!known || peak >= g.l.PIDs) {
			g.hit(PartPIDs)
		}
		g.tally.refusals = n
	}
	if g.l.CPUTime != 0 {
		if used, ok := g.cpuTime(); ok && used >= g.l.CPUTime {
			g.hit(PartCPUTime)
		}
	}
	g.examineWatched()
}

// outOfMemory reports whether a process of the group was killed because the
// group, not one above it or the host, was out of memory.
func (g *Group) outOfMemory(m *member) bool {
	var killed int64
	var own bool
	if m.version == 2 {
		killed, _ = m.field("memory.events", "oom_kill")
		ooms, _ := m.field("memory.events", "oom") // counted at the group whose limit it was, and above
		own = ooms > 0
	} else {
		killed, _ = m.field("memory.oom_control", "oom_kill")
		own = m.reached("memory.", g.l.Memory) || m.reached("memory.memsw.", g.l.Memory)
	}
	more := killed > g.tally.ooms
	g.tally.ooms = killed
	return own && more
}

// reached reports whether a counter of version 1 was ever at its limit. (How often
// it refused more, failcnt, some kernels no longer count.)
func (m *member) reached(counter string, limit int64) bool {
	const slack = 1 << 20 // the kernel charges in batches
	peak, ok := m.number(counter + "max_usage_in_bytes")
	return ok && peak >= limit-slack
}
