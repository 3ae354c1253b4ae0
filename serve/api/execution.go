package api

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/serve"
)

// The names of a command's streams.
const (
	stdout = "stdout"
	stderr = "stderr"
)

// lastOutput is how long a result waits for output of processes that the command left in the background.
const lastOutput = 200 * time.Millisecond

// An execution is a command that runs.
type execution struct {
	p       supervise.Client
	began   time.Time
	pipes   []*os.File
	copying sync.WaitGroup
}

// start starts a command and passes what it writes to sink, one call at a time. The caller calls wait.
func start(
	ctx context.Context, e *engine.Engine, name string, c engine.Command, o supervise.ExecOptions, input []byte, sink func(stream string, p []byte),
) (_ *execution, err error) {
	x := &execution{began: time.Now()}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
		if err != nil {
			for _, f := range x.pipes {
				f.Close()
			}
		}
	}()
	outputs := []struct {
		name string
		to   **os.File
	}{{stdout, &c.Stdout}, {stderr, &c.Stderr}}
	for _, s := range outputs {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		x.pipes, theirs = append(x.pipes, r), append(theirs, w)
		*s.to = w
	}
	if len(input) > 0 {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		x.pipes, theirs = append(x.pipes, w), append(theirs, r)
		c.Stdin = r
	}
	if x.p, err = e.Supervise.ExecWith(ctx, name, c, o); err != nil {
		return nil, err
	}
	var one sync.Mutex
	for i, s := range outputs {
		x.copying.Go(func() {
			defer x.pipes[i].Close()
			buf := make([]byte, 32<<10)
			for {
				n, err := x.pipes[i].Read(buf)
				if n > 0 {
					one.Lock()
					sink(s.name, buf[:n])
					one.Unlock()
				}
				if err != nil {
					return
				}
			}
		})
	}
	if len(input) > 0 {
		x.copying.Go(func() {
			_, _ = x.pipes[2].Write(input) // it ends with the input, the command's end of the pipe or its deadline
			x.pipes[2].Close()
		})
	}
	return x, nil
}

// wait waits for the end of the command, or ends it at the limit or when ctx ends. Then nothing calls sink any more.
func (x *execution) wait(ctx context.Context, limit time.Duration) (Ended, error) {
	var r Ended
	var err error
	r.Exit, r.TimedOut, err = serve.Await(ctx, x.p, limit)
	if err == nil {
		if hit := x.p.Hit(); hit != nil {
			r.Limit = hit.Limit + " " + hit.Value + ": " + hit.Text
		}
	}
	r.Seconds = time.Since(x.began).Seconds()
	for _, p := range x.pipes {
		_ = p.SetDeadline(time.Now().Add(lastOutput)) // a pipe has deadlines
	}
	x.copying.Wait()
	return r, errors.Join(err, x.p.Close())
}

// maxQueued bounds the output that a queue holds for a slow caller.
const maxQueued = 4 << 20

// A chunk is a piece of one stream, or says how many bytes of it are lost.
type chunk struct {
	stream string
	data   []byte
	lost   int64
}

// A queue holds output until the caller has read it. Its writer never waits, so that a slow caller holds up no command:
// output beyond maxQueued is lost, and a chunk says so.
type queue struct {
	mu     sync.Mutex
	more   sync.Cond
	chunks []chunk
	size   int
	ended  bool
}

func newQueue() *queue {
	q := &queue{}
	q.more.L = &q.mu
	return q
}

func (q *queue) add(stream string, p []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.more.Signal()
	last := len(q.chunks) - 1
	if q.size+len(p) <= maxQueued {
		q.chunks, q.size = append(q.chunks, chunk{stream: stream, data: append([]byte(nil), p...)}), q.size+len(p)
		return
	}
	for i := last; i >= 0 && q.chunks[i].lost > 0; i-- {
		if q.chunks[i].stream == stream {
			q.chunks[i].lost += int64(len(p))
			return
		}
	}
	q.chunks = append(q.chunks, chunk{stream: stream, lost: int64(len(p))})
}

// end says that nothing will be added.
func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.more.Signal()
}

// next waits for the next chunk. ok is false after the last one.
func (q *queue) next() (c chunk, ok bool) {
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
	q.size -= len(c.data)
	return c, true
}
