package events

import (
	"context"
	"sort"
	"sync"
	"time"
)

const (
	// feedBytes is how many bytes of the newest events a [Feed] holds in memory. A reader that is further behind
	// reads the files.
	feedBytes = 4 << 20
	// chunkBytes is how many bytes of events a [Feed] passes to a reader at once, at least if it has as many.
	chunkBytes = 128 << 10
	// With many readers a [Feed] waits feedPause for each of them after it has woken them all, at most
	// longestPause, so that a burst of events wakes each reader once and not for each event.
	feedPause    = 20 * time.Microsecond
	longestPause = 50 * time.Millisecond
)

// A Feed passes the event stream of a state directory to any number of readers at once. It reads and encodes
// each new event once for all of them, and only while there are readers. A slow reader holds up no other: when
// the Feed has dropped from memory what it needs, it reads the files as [Read] does. It is safe for concurrent
// use.
type Feed struct {
	state string

	mu      sync.Mutex
	readers int
	stop    context.CancelFunc // ends the goroutine that reads, which runs while there are readers
	chunks  []*chunk           // the newest events, in order
	bytes   int                // of all chunks
	first   uint64             // every event from this number to the newest in chunks is in one of them
	more    chan struct{}      // closed when chunks or err has changed
	err     error              // why the goroutine has ended, or nil
}

// NewFeed returns a Feed of the state directory state. It reads nothing yet.
func NewFeed(state string) *Feed { return &Feed{state: state} }

// A chunk holds events that follow each other, encoded. It does not change once readers have it.
type chunk struct {
	lines []line
	text  []byte // all lines
	sse   func() []byte
}

// A line is one event in a chunk.
type line struct {
	number        uint64
	kind, subject string
	at, end       int // the bytes of the chunk's text that it takes
}

func newChunk() *chunk {
	c := &chunk{}
	c.sse = sync.OnceValue(func() []byte { return c.serverSent(c.lines) })
	return c
}

func (c *chunk) add(e *Event) {
	at := len(c.text)
	c.text = append(c.text, encode(e)...)
	c.lines = append(c.lines, line{e.Number(), e.Type, e.Subject, at, len(c.text)})
}

// serverSent returns lines as server-sent events.
func (c *chunk) serverSent(lines []line) []byte {
	var out []byte
	for _, l := range lines {
		text := c.text[l.at : l.end-1]
		out = append(append(out, "id: "...), numberText(text)...)
		out = append(append(out, "\nevent: "...), l.kind...)
		out = append(append(append(out, "\ndata: "...), text...), "\n\n"...)
	}
	return out
}

// A Batch is a number of events that follow each other, for one reader of a [Feed]. Readers share its bytes and
// must not change them.
type Batch struct {
	c     *chunk
	lines []line
}

// Only returns the events of the batch that are about the sandbox called subject and have the type kind. An empty
// string selects all. Events that report lost ones always stay.
func (b Batch) Only(subject, kind string) Batch {
	if subject == "" && kind == "" {
		return b
	}
	some := Batch{c: b.c}
	for _, l := range b.lines {
		if l.kind == EventsLost || (subject == "" || l.subject == subject) && (kind == "" || l.kind == kind) {
			some.lines = append(some.lines, l)
		}
	}
	return some
}

// Encode returns the events as lines of JSON or, if sse is set, in the form of the HTML standard for
// server-sent events. It returns nil if there are none.
func (b Batch) Encode(sse bool) []byte {
	switch {
	case len(b.lines) == 0:
		return nil
	case sse && len(b.lines) == len(b.c.lines):
		return b.c.sse()
	case sse:
		return b.c.serverSent(b.lines)
	}
	first, last := b.lines[0], b.lines[len(b.lines)-1]
	if last.number-first.number == uint64(len(b.lines)-1) { // none left out in between
		return b.c.text[first.at:last.end]
	}
	var out []byte
	for _, l := range b.lines {
		out = append(out, b.c.text[l.at:l.end]...)
	}
	return out
}

// Follow calls yield for the events after the number after and goes on with new ones, as [Follow] does, until
// ctx ends: then it returns nil. yield gets the events in batches, and an empty batch when none came for the
// time idle. After an error of yield, Follow returns that error.
func (f *Feed) Follow(ctx context.Context, after uint64, idle time.Duration, yield func(Batch) error) error {
	if err := f.join(); err != nil {
		return err
	}
	defer f.leave()
	quiet := time.NewTimer(idle)
	defer quiet.Stop()
	for next := after + 1; ; {
		b, more, err := f.get(next)
		switch {
		case err != nil:
		case b.c != nil:
			next, err = b.lines[len(b.lines)-1].number+1, yield(b)
		case more == nil:
			was := next
			if next, err = f.stored(next, yield); next == was { // somebody has removed the files
				more = f.change()
			}
		}
		if err != nil || ctx.Err() != nil {
			return err
		}
		if more == nil {
			quiet.Reset(idle)
			continue
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil
		case <-quiet.C:
			if err := yield(Batch{}); err != nil {
				return err
			}
			quiet.Reset(idle)
		}
	}
}

// join adds a reader. The first one starts the goroutine that reads new events.
func (f *Feed) join() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readers == 0 || f.err != nil {
		newest, err := Newest(f.state)
		if err != nil {
			return err
		}
		if f.stop != nil {
			f.stop()
		}
		ctx, stop := context.WithCancel(context.Background())
		f.chunks, f.bytes, f.first, f.more, f.err, f.stop = nil, 0, newest+1, make(chan struct{}), nil, stop
		go f.read(ctx, newest)
	}
	f.readers++
	return nil
}

// leave removes a reader. The last one ends the goroutine that reads new events.
func (f *Feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readers--; f.readers == 0 {
		f.stop()
		f.stop, f.chunks, f.bytes = nil, nil, 0
	}
}

// get returns a batch of events from the number next on. If none has come yet, it returns a channel instead, which is
// closed when one may have come. It returns neither if memory no longer has the event, so that the caller must read the
// files. Errors: the one that ended the goroutine that reads.
func (f *Feed) get(next uint64) (Batch, <-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return Batch{}, nil, f.err
	}
	if next < f.first {
		return Batch{}, nil, nil
	}
	i := sort.Search(len(f.chunks), func(i int) bool { return f.chunks[i].last() >= next })
	if i == len(f.chunks) {
		return Batch{}, f.more, nil
	}
	c := f.chunks[i]
	from := sort.Search(len(c.lines), func(k int) bool { return c.lines[k].number >= next })
	return Batch{c, c.lines[from:]}, nil, nil
}

// change returns a channel that is closed when an event may have come.
func (f *Feed) change() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.more
}

func (c *chunk) last() uint64 { return c.lines[len(c.lines)-1].number }

// Read calls yield for the stored events after the number after, in batches, as [Read] does.
func (f *Feed) Read(after uint64, yield func(Batch) error) error {
	_, err := f.stored(after+1, yield)
	return err
}

// stored calls yield for the events from the number next on that the files have, and returns the number after the last
// of them.
func (f *Feed) stored(next uint64, yield func(Batch) error) (uint64, error) {
	c := newChunk()
	pass := func() error {
		if len(c.lines) == 0 {
			return nil
		}
		full := c
		next, c = full.last()+1, newChunk()
		return yield(Batch{full, full.lines})
	}
	err := Read(f.state, next-1, func(e Event) error {
		if c.add(&e); len(c.text) < chunkBytes {
			return nil
		}
		return pass()
	})
	if err == nil {
		err = pass()
	}
	return next, err
}

// read publishes each new event after the number after to all readers until ctx ends.
func (f *Feed) read(ctx context.Context, after uint64) {
	c := newChunk()
	err := follow(ctx, f.state, after, func(e Event) error {
		if c.add(&e); len(c.text) >= chunkBytes {
			f.publish(ctx, c)
			c = newChunk()
		}
		return ctx.Err()
	}, func() {
		if len(c.lines) == 0 {
			return
		}
		pause := f.publish(ctx, c)
		c = newChunk()
		wait := time.NewTimer(pause)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() == nil && err != nil {
		f.err = err
		close(f.more)
	}
}

// publish makes a chunk available to the readers and wakes them, unless ctx has ended. It returns how long the caller
// should collect the next chunk.
func (f *Feed) publish(ctx context.Context, c *chunk) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return 0
	}
	f.chunks, f.bytes = append(f.chunks, c), f.bytes+len(c.text)
	for f.bytes > feedBytes && len(f.chunks) > 1 {
		f.first, f.bytes = f.chunks[0].last()+1, f.bytes-len(f.chunks[0].text)
		f.chunks[0] = nil
		f.chunks = f.chunks[1:]
	}
	close(f.more)
	f.more = make(chan struct{})
	return min(time.Duration(f.readers-1)*feedPause, longestPause)
}
