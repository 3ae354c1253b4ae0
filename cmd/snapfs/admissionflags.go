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

// admissionFlags are the flags about waiting for capacity, of the commands that start a
// sandbox.
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

// A patienceValue is the value of a duration flag, in the grammar of limits.
type patienceValue time.Duration

// Set reads a duration such as 10m; zero is an error.
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

// String returns the duration in the grammar that Set reads, or "" for none.
func (p *patienceValue) String() string {
	if *p == 0 {
		return ""
	}
	return units.FormatDuration(time.Duration(*p))
}

// Type returns the flag's type for the help text.
func (p *patienceValue) Type() string { return "duration" }

// admission returns the engine's admission options that the flags select.
func (a *admissionFlags) admission(u *ui) (supervise.Admission, error) {
	if a.queue > 0 && a.ifRoom {
		return supervise.Admission{}, usageError(errors.New("--queue and --if-room exclude one another"))
	}
	return supervise.Admission{Queue: a.queue, IfRoom: a.ifRoom, Waiting: u.waits()}, nil
}

// waits returns a callback that prints the number of requests ahead in the queue: on a
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

// queuePosition returns a text with the number of requests before this one in the queue, and the
// reason of the wait.
func queuePosition(before int, why string) string {
	if before == 0 {
		return "first in the queue: " + why
	}
	return fmt.Sprintf("%d ahead in the queue", before)
}
