package command

import "sync"

// maxQueued is how many bytes of output a [Queue] holds for a slow client, 4 MiB. Further output is lost.
const maxQueued = 4 << 20

// A Chunk is a piece of a command's output on one stream, or says how many bytes of that stream are lost.
type Chunk struct {
	Stream string
	Data   []byte
	Lost   int64
}

// A Queue holds the output of a command until its client has read it. Adding to it never waits, so a slow
// client never holds up a command. Output beyond 4 MiB is lost, and a Chunk says so.
type Queue struct {
	mu     sync.Mutex
	more   sync.Cond
	chunks []Chunk
	size   int
	ended  bool
}

// NewQueue returns an empty Queue, for the output of one command.
func NewQueue() *Queue {
	q := &Queue{}
	q.more.L = &q.mu
	return q
}

// Add adds the bytes p that a command wrote to the stream called stream. It never waits. [Options] takes Add
// as the function that gets a command's output.
func (q *Queue) Add(stream string, p []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.more.Signal()
	last := len(q.chunks) - 1
	if q.size+len(p) <= maxQueued {
		q.chunks, q.size = append(q.chunks, Chunk{Stream: stream, Data: append([]byte(nil), p...)}), q.size+len(p)
		return
	}
	for i := last; i >= 0 && q.chunks[i].Lost > 0; i-- {
		if q.chunks[i].Stream == stream {
			q.chunks[i].Lost += int64(len(p))
			return
		}
	}
	q.chunks = append(q.chunks, Chunk{Stream: stream, Lost: int64(len(p))})
}

// End says that no more output of the command will be added to the queue, so that [Queue.Next] can end.
func (q *Queue) End() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.more.Signal()
}

// Next waits for the next piece of the command's output and removes it from the queue. ok is false after the
// last one.
func (q *Queue) Next() (c Chunk, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.chunks) == 0 && !q.ended {
		q.more.Wait()
	}
	if len(q.chunks) == 0 {
		return c, false
	}
	c = q.chunks[0]
	q.chunks = q.chunks[1:]
	q.size -= len(c.Data)
	return c, true
}
