package supervise

import (
	"context"
	"sync"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// A serverMonitor is a box whose files may be shown by processes outside of it. Where one of
// those is killed, nothing inside can read or write any more, and nothing brings its
// mounts back: then the box is ended, and the next command mounts its trees again.
type serverMonitor struct {
	forks []forkOf
	Note  string // for whoever waits for a command in it
}

type forkOf struct {
	monitor snapshot.ServerMonitor
	id      snapshot.ForkID
}

// serverMonitorOf knows what shows the trees of a sandbox that has just started.
func (sv *Manager) serverMonitorOf(rec *catalog.Record) *serverMonitor {
	l := &serverMonitor{Note: rec.Name + ": the process that showed its files was killed: what ran in it has been ended, and what it had synced is there"}
	for _, t := range rec.Trees {
		if b, err := sv.host.BackendOf(context.Background(), t); err == nil {
			if monitor, ok := b.(snapshot.ServerMonitor); ok {
				l.forks = append(l.forks, forkOf{monitor, t.Fork})
			}
		}
	}
	return l
}

// watch calls lost, should that happen before the answer is called.
func (l *serverMonitor) watch(lost func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var runs sync.WaitGroup
	for _, f := range l.forks {
		runs.Go(func() {
			if f.monitor.WaitExit(ctx, f.id) {
				lost()
			}
		})
	}
	return func() { cancel(); runs.Wait() }
}

// Killed reports whether a server was killed, when a command has just ended. Cost: that of
// [snapshot.ServerMonitor], where the trees have one.
func (l *serverMonitor) Killed() bool {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	for _, f := range l.forks {
		if f.monitor.WaitExit(now, f.id) {
			return true
		}
	}
	return false
}
