//go:build linux

package httpload

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Rounds are the times of rounds in which clients make a sandbox, run a command in it and remove it, with the
// totals of all rounds.
type Rounds struct {
	// New, Exec, Remove and All are the times of each round's three requests, and of the three together.
	New, Exec, Remove, All []time.Duration
	// Elapsed is the time from the first round's begin to the last one's end, and Processor the
	// processor time of the server and of its descendants.
	Elapsed, Processor time.Duration
}

// Round measures n rounds by clients at once. Each round makes a sandbox, runs true in it, and removes it.
func (s *Server) Round(ctx context.Context, n, clients int) (*Rounds, error) {
	c := s.Client(clients)
	defer c.Close()
	r := &Rounds{New: make([]time.Duration, n), Exec: make([]time.Duration, n), Remove: make([]time.Duration, n), All: make([]time.Duration, n)}
	before, err := s.Processor()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	var next atomic.Int64
	var running sync.WaitGroup
	failures := make([]error, clients)
	for k := range clients {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && failures[k] == nil; i = int(next.Add(1)) - 1 {
				failures[k] = r.one(ctx, c, i)
			}
		})
	}
	running.Wait()
	r.Elapsed = time.Since(began)
	after, err := s.Processor()
	r.Processor = after - before
	return r, errors.Join(append(failures, err)...)
}

// one makes, uses and removes the sandbox of round i, and stores how long each step took in r.
func (r *Rounds) one(ctx context.Context, c *Client, i int) (err error) {
	name := fmt.Sprintf("round-%d", i)
	began := time.Now()
	if err := c.New(ctx, name); err != nil {
		return err
	}
	r.New[i] = time.Since(began)
	_, err = c.Exec(ctx, name, "true")
	r.Exec[i] = time.Since(began) - r.New[i]
	err = errors.Join(err, c.Remove(context.WithoutCancel(ctx), name))
	r.All[i] = time.Since(began)
	r.Remove[i] = r.All[i] - r.New[i] - r.Exec[i]
	return err
}

// FirstInstruction makes the sandbox called name and runs the program date in it, and returns the time from
// the first request until date read the clock.
func (c *Client) FirstInstruction(ctx context.Context, name string) (time.Duration, error) {
	began := time.Now()
	if err := c.New(ctx, name); err != nil {
		return 0, err
	}
	text, err := c.Exec(ctx, name, "date", "+%s%N")
	if err != nil {
		return 0, err
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return time.Unix(0, ns).Sub(began), err
}
