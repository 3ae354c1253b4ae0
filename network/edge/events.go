//go:build linux

package edge

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/snapfs/snapfs/network"
)

// maxQueued is how many events, decisions of the proxy, may wait for the listener, the supervisor of the
// sandbox. More are dropped and counted.
const maxQueued = 4096

// maxBatch is how many events the listener gets at once at most. So many fit into a message to the supervisor.
const maxBatch = 16

// A queue passes the proxy's events, its decisions on connections, to a listener function in a goroutine of
// its own, without delaying traffic. The zero value has no listener.
type queue struct {
	lost   atomic.Int64
	ch     chan network.Event
	mu     sync.RWMutex // held for writing only to close ch
	closed bool
	done   chan struct{}
}

// start calls listen with the events in their order: each time with all that wait, at most maxBatch.
func (q *queue) start(listen func([]network.Event)) {
	q.done = make(chan struct{})
	if listen == nil {
		close(q.done)
		return
	}
	q.ch = make(chan network.Event, maxQueued)
	go func() {
		defer close(q.done)
		for ev := range q.ch {
			batch := []network.Event{ev}
			for more := true; more && len(batch) < maxBatch; {
				select {
				case ev, more = <-q.ch:
					if more {
						batch = append(batch, ev)
					}
				default:
					more = false
				}
			}
			listen(batch)
		}
	}()
}

func (q *queue) put(ev network.Event) {
	if q.ch == nil {
		return
	}
	ev.Time = time.Now()
	q.mu.RLock()
	defer q.mu.RUnlock()
	if q.closed {
		q.lost.Add(1)
		return
	}
	select {
	case q.ch <- ev:
	default:
		q.lost.Add(1)
	}
}

// stop accepts no more of the proxy's events and waits until the supervisor has received the queued ones.
func (q *queue) stop() {
	q.mu.Lock()
	if !q.closed && q.ch != nil {
		close(q.ch)
	}
	q.closed = true
	q.mu.Unlock()
	<-q.done
}
