//go:build linux

package edge

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/snapfs/snapfs/network"
)

// maxQueued is how many events, decisions of the proxy, may wait for the listener, the supervisor of the
// sandbox. More are dropped and counted.
const maxQueued = 4096

// maxBatch is how many events the listener gets at once at most. So many usually fit into a message to the supervisor.
const maxBatch = 16

// maxField is how many bytes of each text in an event that a client in the sandbox chooses the listener gets, so that
// every event fits into a message to the supervisor. A request may have a path of 256 KiB.
const maxField = 4 << 10

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
	ev.Name, ev.Method, ev.Path, ev.Why = cut(ev.Name), cut(ev.Method), cut(ev.Path), cut(ev.Why)
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

// cut returns a text, or its first maxField bytes and an ellipsis.
func cut(text string) string {
	if len(text) <= maxField {
		return text
	}
	return strings.ToValidUTF8(text[:maxField], "") + "…"
}
