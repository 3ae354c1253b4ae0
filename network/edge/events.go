//go:build linux

package edge

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/snapfs/snapfs/network"
)

// queued is how many events may wait for who takes them.
const queued = 4096

// A queue hands events on without making traffic wait. The zero value has no listener.
type queue struct {
	lost atomic.Int64
	line chan network.Event
	mu   sync.RWMutex // held for writing only to close the line
	over bool
	done chan struct{}
}

func (q *queue) start(listen func(network.Event)) {
	q.done = make(chan struct{})
	if listen == nil {
		close(q.done)
		return
	}
	q.line = make(chan network.Event, queued)
	go func() {
		defer close(q.done)
		for ev := range q.line {
			listen(ev)
		}
	}()
}

func (q *queue) put(ev network.Event) {
	if q.line == nil {
		return
	}
	ev.Time = time.Now()
	q.mu.RLock()
	defer q.mu.RUnlock()
	if q.over {
		q.lost.Add(1)
		return
	}
	select {
	case q.line <- ev:
	default:
		q.lost.Add(1)
	}
}

// stop waits until what is queued was taken.
func (q *queue) stop() {
	q.mu.Lock()
	if !q.over && q.line != nil {
		close(q.line)
	}
	q.over = true
	q.mu.Unlock()
	<-q.done
}
