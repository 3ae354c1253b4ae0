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

// admissionFlags are those of the commands that need room on this host.
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

// A patienceValue is a duration as limits are written.
type patienceValue time.Duration

// Set reads it.
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

// String is the duration as it is read, or "".
func (p *patienceValue) String() string {
	if *p == 0 {
		return ""
	}
	return units.FormatDuration(time.Duration(*p))
}

// Type is what help calls it.
func (p *patienceValue) Type() string { return "duration" }

// admission is what the engine is asked for.
func (a *admissionFlags) admission(u *ui) (supervise.Admission, error) {
	if a.queue > 0 && a.ifRoom {
		return supervise.Admission{}, usageError{errors.New("--queue and --if-room exclude one another")}
	}
	return supervise.Admission{Queue: a.queue, IfRoom: a.ifRoom, Waiting: u.waits()}, nil
}

// waits tells a person how many wait before the command: at a terminal whenever that
// changes, otherwise once.
func (u *ui) waits() func(before int, why string) {
	if isTerminal(u.err) {
		return func(before int, why string) { u.notice("waiting for capacity, " + standing(before, why)) }
	}
	var once sync.Once
	return func(before int, why string) {
		once.Do(func() { u.notice("waiting for capacity, " + standing(before, why)) })
	}
}

func standing(before int, why string) string {
	if before == 0 {
		return "first in the queue: " + why
	}
	return fmt.Sprintf("%d ahead in the queue", before)
}
