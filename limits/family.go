package limits

import "time"

// examineWatched looks at what no control group counts.
func (g *Group) examineWatched() {
	if g.pid == 0 || g.l.Memory == 0 || g.find("memory") != nil {
		return
	}
	used := familyMemory(family(g.pid), g.l.Memory)
	g.tally.peak = max(g.tally.peak, used)
	if used > g.l.Memory {
		g.hit(PartMemory)
	}
}

// nextWatched is when to look again at what no control group counts, or 0.
func (g *Group) nextWatched() time.Duration {
	if g.pid == 0 || g.l.Memory == 0 || g.find("memory") != nil {
		return 0
	}
	return watchEvery
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
}
