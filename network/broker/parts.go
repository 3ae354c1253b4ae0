package broker

import (
	"net/http"
	"sync"
	"time"
)

// flushTime is how long a part of a response waits for the next one before it is sent. A short response is then one
// packet, with its head and its end. In several packets, on a busy machine some responses waited 40 ms: for the kernel
// in the sandbox, which acknowledges a part only when there is something else to send (TCP_DELACK_MIN).
const flushTime = time.Millisecond

// A partWriter writes the parts of a response, and sends them after [flushTime].
type partWriter struct {
	w     http.ResponseWriter
	flush http.Flusher // nil if the response cannot be sent in parts
	timer *time.Timer

	mu      sync.Mutex
	waiting bool // a part has been written, and is to be sent
	ended   bool
}

// newPartWriter returns a writer for the parts of the response w. The caller calls end before it returns or changes the
// header of w.
func newPartWriter(w http.ResponseWriter) *partWriter {
	p := &partWriter{w: w}
	p.flush, _ = w.(http.Flusher)
	return p
}

// write writes a part of the response; last is set for the last part, which end sends. The error is that of the
// connection, possibly from sending an earlier part.
func (p *partWriter) write(part []byte, last bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.w.Write(part); err != nil {
		return err
	}
	if p.waiting || last || p.flush == nil {
		return nil
	}
	p.waiting = true
	if p.timer == nil {
		p.timer = time.AfterFunc(flushTime, p.send)
	} else {
		p.timer.Reset(flushTime)
	}
	return nil
}

// send sends what was written.
func (p *partWriter) send() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting && !p.ended {
		p.waiting = false
		p.flush.Flush()
	}
}

// end ends the response. What was not sent yet is sent with its end.
func (p *partWriter) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if p.timer != nil {
		p.timer.Stop()
	}
}
