//go:build linux

package httpload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/internal/run"
)

// clients is how many clients send requests at once while rounds are measured.
const clients = 2

// Measure measures n rounds of requests to the server, in each of which a client makes a sandbox, runs true
// in it and removes it. Less often it measures the time until the first instruction of a command in a new
// sandbox, a command in a running sandbox, and for comparison the same command without a sandbox and in one
// of the program sandlock. workspace is the server's.
func (s *Server) Measure(ctx context.Context, n int, workspace string) ([]timing.Sample, error) {
	if _, err := s.Round(ctx, 2*clients, clients); err != nil { // not counted
		return nil, err
	}
	r, err := s.Round(ctx, n, clients)
	if err != nil {
		return nil, err
	}
	each := float64(r.Processor.Milliseconds()) / float64(n)
	samples := []timing.Sample{
		{Name: fmt.Sprintf("make, exec true, remove by %d clients: %.0f a second, %.1f ms of processor time each", clients, float64(n)/r.Elapsed.Seconds(), each), Took: r.All},
		{Name: "of it, the last tenth of the rounds", Took: r.All[n-n/10:]},
		{Name: "of it, make", Took: r.New},
		{Name: "of it, exec true", Took: r.Exec},
		{Name: "of it, remove", Took: r.Remove},
	}
	alone, err := s.alone(ctx, n, workspace)
	if err != nil {
		return samples, err
	}
	crowd, err := s.Readers(ctx, min(n, crowdReaders), 10*min(n, crowdReaders), crowdRate)
	if err != nil {
		return append(samples, alone...), err
	}
	return slices.Concat(samples, alone, crowd.samples()), nil
}

// crowdReaders is how many readers follow the events at once, and crowdRate how many events come in a second.
// A measurement with fewer rounds has fewer readers, and ten events for each round.
const crowdReaders, crowdRate = 1000, 10_000

// alone measures single commands in turns, n of each: in a new sandbox of workspace, in a running one,
// without a sandbox and by the program sandlock.
func (s *Server) alone(ctx context.Context, n int, workspace string) (_ []timing.Sample, err error) {
	c := s.Client(clients)
	defer c.Close()
	const live, fresh = "live", "fresh"
	if err := c.New(ctx, live); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Remove(context.WithoutCancel(ctx), live)) }()
	holding, stop := context.WithCancel(ctx)
	defer stop()
	go func() { _, _ = c.Exec(holding, live, "sleep", "1000000") }() // ended by stop
	list := []timing.Subject{
		{
			Name: "make, until the first command reads the clock", Do: func(ctx context.Context) (time.Duration, error) { return c.FirstInstruction(ctx, fresh) },
			After: func(ctx context.Context) error { return c.Remove(ctx, fresh) },
		},
		{Name: "exec true in a running sandbox", Do: timing.Timing(func(ctx context.Context) error { _, err := c.Exec(ctx, live, "true"); return err })},
	}
	for _, other := range []struct {
		name string
		args []string
	}{
		{"fork and exec of true, without a sandbox", []string{"true"}},
		{"sandlock run, which copies on write in the workspace alone", []string{"sandlock", "run", "-r", "/", "-w", workspace, "--workdir", workspace, "--", "true"}},
	} {
		p, err := run.Prepare(run.Program{Name: other.args[0], Args: other.args[1:], Dir: workspace})
		if errors.Is(err, run.ErrMissing) {
			list = append(list, timing.Subject{Name: other.name, Do: func(context.Context) (time.Duration, error) { return 0, err }})
			continue
		}
		if err != nil {
			return nil, err
		}
		defer p.Close()
		list = append(list, timing.Subject{Name: other.name, Do: p.Run})
	}
	list = append(list, timing.Subject{
		Name: "a container with true by bare system calls, the floor", Do: func(ctx context.Context) (time.Duration, error) { return floor(ctx, workspace) },
	})
	return timing.Interleave(ctx, timing.Plan{Rounds: max(n/5, 3), Warm: 3, Budget: 60 * time.Second}, list...)
}
