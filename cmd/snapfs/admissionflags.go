package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/internal/units"
	"github.com/spf13/pflag"
)

// admissionFlags hold the flags --queue and --if-room of the commands that start a sandbox: what to do while
// the host has no capacity.
type admissionFlags struct {
	queue  time.Duration
	ifRoom bool
}

func (a *admissionFlags) add(f *pflag.FlagSet) {
	f.Var((*patienceValue)(&a.queue), "queue",
		"queue until this host has capacity, at most this long (--queue alone: 10m); see snapfs help room")
	f.Lookup("queue").NoOptDefVal = "10m"
	f.BoolVar(&a.ifRoom, "if-room", false, "fail at once if this host has no capacity")
}

// A patienceValue is the value of the flag --queue, how long to wait for capacity: a duration such as 10m.
type patienceValue time.Duration

// Set parses the value of --queue, a duration such as 10m; zero is an error. Package pflag calls it.
func (p *patienceValue) Set(text string) error {
	d, err := units.ParseDuration(text)
	if errors.Is(err, units.ErrZero) {
		return fmt.Errorf("%w: --if-room does not wait", err)
	}
	if err == nil {
		*p = patienceValue(d)
	}
	return err
}

// String returns the value of --queue as Set parses it, or "" for none. Package pflag calls it.
func (p *patienceValue) String() string {
	if *p == 0 {
		return ""
	}
	return units.FormatDuration(time.Duration(*p))
}

// Type returns the name of the type of the flag --queue in the help text.
func (p *patienceValue) Type() string { return "duration" }

// admission returns, from the flags --queue and --if-room, the engine's options for starting a sandbox while
// the host has no capacity.
func (a *admissionFlags) admission(u *ui) (supervise.Admission, error) {
	if a.queue > 0 && a.ifRoom {
		return supervise.Admission{}, usageError(errors.New("--queue and --if-room exclude one another"))
	}
	return supervise.Admission{Queue: a.queue, IfRoom: a.ifRoom, Waiting: u.waits()}, nil
}

// waits returns the function that prints the place in the queue while a sandbox waits for capacity: on a
// terminal at each change, otherwise once.
func (u *ui) waits() func(before int, why string) {
	if isTerminal(u.err) {
		return func(before int, why string) { u.notice("waiting for capacity, " + queuePosition(before, why)) }
	}
	var once sync.Once
	return func(before int, why string) {
		once.Do(func() { u.notice("waiting for capacity, " + queuePosition(before, why)) })
	}
}

// queuePosition returns a text for a request that waits for capacity: how many requests are before it in the
// queue, and why it waits.
func queuePosition(before int, why string) string {
	if before == 0 {
		return "first in the queue: " + why
	}
	return fmt.Sprintf("%d ahead in the queue", before)
}
