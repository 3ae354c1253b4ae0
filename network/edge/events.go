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

// maxBatch is how many events the listener gets at once at most.
const maxBatch = 256

// gatherTime is how long the event of an allowed HTTP request waits for others, to share a message to the supervisor.
// A client may make thousands of requests a second, and each message costs some 0.2 ms to wake a process. Every other
// event is passed on at once, with those before it.
const gatherTime = 25 * time.Millisecond

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
	hurry  chan struct{} // has a value if the events in ch must not wait for others
}

// start calls listen with the events in their order: each time with all that wait, at most maxBatch.
func (q *queue) start(listen func([]network.Event)) {
	q.done = make(chan struct{})
	if listen == nil {
		close(q.done)
		return
	}
	q.ch, q.hurry = make(chan network.Event, maxQueued), make(chan struct{}, 1)
	go func() {
		defer close(q.done)
		wait := time.NewTimer(0)
		for ev := range q.ch {
			if gathers(ev) {
				wait.Reset(gatherTime)
				select {
				case <-q.hurry:
				case <-wait.C:
				}
			}
			listen(append([]network.Event{ev}, q.waiting()...))
		}
	}()
}

// waiting returns the events in q.ch, at most one less than maxBatch, without waiting for others.
func (q *queue) waiting() (batch []network.Event) {
	for len(batch) < maxBatch-1 {
		select {
		case ev, ok := <-q.ch:
			if !ok {
				return batch
			}
			batch = append(batch, ev)
		default:
			return batch
		}
	}
	return batch
}

// send ends the wait of the events in q.ch for others.
func (q *queue) send() {
	select {
	case q.hurry <- struct{}{}:
	default: // one is there already
	}
}

// gathers reports whether an event waits for others: it is an allowed HTTP request, which the supervisor only logs.
func gathers(ev network.Event) bool { return ev.Kind == network.HTTP && ev.Allowed && !ev.Failed }

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
		if !gathers(ev) || len(q.ch) >= maxBatch {
			q.send()
		}
	default:
		q.lost.Add(1)
	}
}

// stop accepts no more of the proxy's events and waits until the supervisor has received the queued ones.
func (q *queue) stop() {
	q.mu.Lock()
	if !q.closed && q.ch != nil {
		close(q.ch)
		q.send()
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
