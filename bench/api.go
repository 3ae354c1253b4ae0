//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/snapfs/snapfs/bench/httpload"
)

// api measures requests to `snapfs serve`, as root and with the backend overlay, and for comparison the same command
// in a sandbox of the program sandlock.
func (l *lab) api(ctx context.Context) (results []Result, err error) {
	s := l.settings()[0]
	l.Say("snapfs serve: requests")
	dir, giveBack, err := l.borrow(ctx, s, crowdFiles)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, giveBack()) }()
	defer func() { err = errors.Join(err, Clear(context.WithoutCancel(ctx), s.State)) }() // before its tree goes
	server, err := httpload.Start(ctx, l.Program, l.Self, s.State, dir, s.Driver, l.dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	rounds := 25 * l.Rounds
	if l.Full {
		rounds = 10_000
	}
	samples, err := server.Measure(ctx, rounds, dir)
	for _, found := range samples {
		results = append(results, resultOf(Result{Kind: kindAPI, What: found.Name, Setting: s.Name, Files: crowdFiles}, found))
	}
	peak, merr := server.PeakMemory()
	if merr == nil {
		l.Say(fmt.Sprintf("snapfs serve: at most %d MiB of memory", peak>>20))
	}
	return results, errors.Join(err, merr)
}
