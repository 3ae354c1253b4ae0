//go:build linux

package httpload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/internal/run"
)

// A Crowd is what [Server.Readers] measured: many readers of the event stream, while events are written.
type Crowd struct {
	// Readers is the number of readers, and Events the number of events that each should get. Lost is the number of
	// events that did not come, of all readers together.
	Readers, Events int
	Lost            int64
	// Wrote is how long the events were written, and All how long until every reader had all of them.
	Wrote, All time.Duration
	// Late are the times from the writing of the last event until a reader had it.
	Late []time.Duration
	// Processor is the processor time of the server, and Memory its largest resident memory so far, in bytes.
	Processor time.Duration
	Memory    int64
}

// crowdTimeout bounds how long [Server.Readers] waits for the last event. Events that have not come by then count as
// lost.
const crowdTimeout = 5 * time.Minute

// Readers lets a number of readers follow the server's event stream, each on a connection of its own. Meanwhile
// another process writes n events at the given rate a second, or as fast as it can if it cannot keep that rate.
func (s *Server) Readers(ctx context.Context, readers, n, rate int) (*Crowd, error) {
	ctx, stop := context.WithTimeout(ctx, crowdTimeout)
	defer stop()
	c := s.Client(readers)
	defer c.Close()
	newest, err := events.Newest(s.state)
	if err != nil {
		return nil, err
	}
	r := &Crowd{Readers: readers, Events: n, Late: make([]time.Duration, readers)}
	var began, running sync.WaitGroup
	var got atomic.Int64
	ends, failures := make([]time.Time, readers), make([]error, readers)
	for i := range readers {
		began.Add(1)
		running.Go(func() {
			var k int
			k, failures[i] = c.follow(ctx, newest, n, began.Done)
			got.Add(int64(k))
			ends[i] = time.Now()
		})
	}
	began.Wait()
	before, err := s.Processor()
	if err != nil {
		return nil, err
	}
	wrote, err := s.write(ctx, n, rate)
	if err != nil {
		return nil, err
	}
	running.Wait()
	r.Wrote, r.All = wrote.Last.Sub(wrote.First), time.Now().Round(0).Sub(wrote.First) // the clock of both processes
	for i, end := range ends {
		r.Late[i] = max(0, end.Round(0).Sub(wrote.Last))
	}
	r.Lost = int64(readers*n) - got.Load()
	after, perr := s.Processor()
	memory, merr := s.PeakMemory()
	r.Processor, r.Memory = after-before, memory
	return r, errors.Join(append(failures, perr, merr)...)
}

// RoleWrite is the name of the part of a process that calls [WriteEvents].
const RoleWrite = "events"

// An order says how many events [WriteEvents] writes, how many of them a second, and to which state directory.
type order struct {
	State   string
	N, Rate int
}

// wrote are the times before the first and after the last event of [WriteEvents].
type wrote struct{ First, Last time.Time }

// write appends n events to the server's stream, rate a second, in a process of its own: in this one each event would
// wait for its turn among the readers.
func (s *Server) write(ctx context.Context, n, rate int) (w wrote, err error) {
	ask, err := json.Marshal(order{s.state, n, rate})
	if err != nil {
		return w, err
	}
	var out bytes.Buffer
	if err := run.Run(ctx, run.Program{Name: s.self, Args: []string{"--role", RoleWrite, "--order", string(ask)}, Env: os.Environ(), Stdout: &out}); err != nil {
		return w, err
	}
	return w, json.Unmarshal(out.Bytes(), &w)
}

// WriteEvents is the main function of the process that writes events for [Server.Readers]. ask is its order as JSON
// text; it writes the times that it took to out.
func WriteEvents(ctx context.Context, ask string, out io.Writer) error {
	var o order
	if err := json.Unmarshal([]byte(ask), &o); err != nil {
		return err
	}
	var failed error
	l := events.New(o.State, func(text string) { failed = errors.Join(failed, errors.New(text)) }, nil)
	began := time.Now()
	for i := range o.N {
		if ahead := time.Duration(i)*time.Second/time.Duration(o.Rate) - time.Since(began); ahead > time.Millisecond {
			time.Sleep(ahead)
		}
		l.Append(events.Event{Type: events.CommandEnded, Subject: "crowd", Data: events.Data{Run: strconv.Itoa(i), Status: new(int)}, Unwitnessed: true})
	}
	if err := errors.Join(failed, ctx.Err()); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(wrote{began, time.Now()})
}

// follow reads the event stream from the event after number after on until n events have come, and returns how many
// came. It calls began once, when it has the response's header or has failed. An event about lost events is an error.
func (c *Client) follow(ctx context.Context, after uint64, n int, began func()) (got int, err error) {
	var once sync.Once
	defer once.Do(began)
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://snapfs/v1/events?after=%d", after), nil)
	if err != nil {
		return 0, err
	}
	r, err := c.http.Do(q)
	if err != nil {
		return 0, err
	}
	defer r.Body.Close() //nolint:errcheck // of a stream that is not read to its end
	if r.StatusCode != http.StatusOK {
		return 0, errors.New(r.Status)
	}
	once.Do(began)
	buf := make([]byte, 16<<10)
	for last := byte('\n'); got < n; {
		k, err := r.Body.Read(buf)
		got += bytes.Count(buf[:k], []byte("\n")) - bytes.Count(buf[:k], []byte("\n\n")) // an empty line is no event
		if k > 0 {
			if buf[0] == '\n' && last == '\n' {
				got--
			}
			last = buf[k-1]
		}
		switch {
		case bytes.Contains(buf[:k], []byte(events.EventsLost)):
			return got, errors.New("events were lost")
		case ctx.Err() != nil:
			return got, nil // counted as lost
		case err != nil && !errors.Is(err, io.EOF):
			return got, err
		case err != nil:
			return got, nil
		}
	}
	return got, nil
}

// samples returns the result as rows of the report.
func (r *Crowd) samples() []timing.Sample {
	name := fmt.Sprintf("%d readers of events, %d written in %.1f s, all read %.1f s after the first: %.2f million a second, %d lost; serve: %.1f s of processor time, %d MiB of memory; each reader's last event, late by",
		r.Readers, r.Events, r.Wrote.Seconds(), r.All.Seconds(), float64(r.Readers*r.Events)/r.All.Seconds()/1e6, r.Lost, r.Processor.Seconds(), r.Memory>>20)
	return []timing.Sample{{Name: name, Took: r.Late}}
}
