package supervise

import (
	"context"
	"sync"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// A serverMonitor watches the FUSE server processes of a sandbox's trees, which run outside of the sandbox. If one is
// killed, the mounts inside are lost for good: the supervisor then ends the container, and the next command mounts
// the trees again.
type serverMonitor struct {
	forks []forkOf
	Note  string // notice for the clients
}

type forkOf struct {
	monitor snapshot.ServerMonitor
	id      snapshot.ForkID
}

// serverMonitorOf returns the object that watches the FUSE server processes of a started sandbox's trees.
func (sv *Manager) serverMonitorOf(rec *catalog.Record) *serverMonitor {
	l := &serverMonitor{Note: rec.Name + ": the server process of its files was killed, so its commands were ended; all synced data is safe"}
	for _, t := range rec.Trees {
		if b, err := sv.host.BackendOf(context.Background(), t); err == nil {
			if monitor, ok := b.(snapshot.ServerMonitor); ok {
				l.forks = append(l.forks, forkOf{monitor, t.Fork})
			}
		}
	}
	return l
}

// watch calls lost when a FUSE server process of the sandbox's trees is killed, until the caller calls stop.
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

// Killed reports whether a FUSE server process of the sandbox's trees was killed. It costs one
// [snapshot.ServerMonitor] call for each tree that has one.
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
