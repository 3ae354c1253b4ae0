//go:build !linux

package limits

import (
	"context"
	"errors"
	"os"
	"slices"
)

var errLinux = errors.New("needs Linux")

// A Group is the limits of one box. Nothing holds any here.
type Group struct{ held []Held }

// Start makes a group, without limits: each is an error that matches
// [ErrNotSupported], or with [Options.BestEffort] held by nothing.
func Start(_ context.Context, _ string, l Limits, o Options) (*Group, error) {
	g := &Group{}
	if err := l.Check(); err != nil {
		return nil, err
	}
	for _, a := range l.asked() {
		if !o.BestEffort {
			return nil, &Error{Op: "limiting " + string(a.part), Kind: ErrNotSupported, Err: errLinux}
		}
		g.held = append(g.held, Held{Part: a.part, Value: a.text, By: ByNothing, Note: errLinux.Error()})
	}
	return g, nil
}

// Level says by what each limit is held: by nothing.
func (g *Group) Level() []Held { return slices.Clone(g.held) }

// Set replaces the limits, where there is none to hold.
func (g *Group) Set(_ context.Context, l Limits) error {
	if err := l.Check(); err != nil {
		return err
	}
	for _, a := range l.asked() {
		return &Error{Op: "limiting " + string(a.part), Kind: ErrNotSupported, Err: errLinux}
	}
	return nil
}

// Cgroups are the control groups of the box: none.
func (*Group) Cgroups() []*os.File { return nil }

// Rlimits are what every process of the box must be given: nothing.
func (*Group) Rlimits() []Rlimit { return nil }

// Attach tells which process is pid 1 of the box.
func (*Group) Attach(int) error { return nil }

// Left tells that the box has ended.
func (*Group) Left() {}

// Usage counts nothing.
func (*Group) Usage() (Usage, error) { return Usage{}, nil }

// Hit is a limit that was hit: none.
func (*Group) Hit() (Cause, bool) { return Cause{}, false }

// Events tells of limits that were hit: never.
func (*Group) Events() <-chan Cause { return nil }

// Kill ends the processes of the box, on Linux.
func (*Group) Kill(context.Context) error {
	return &Error{Op: "killing", Kind: ErrNotSupported, Err: errLinux}
}

// Close ends the group.
func (*Group) Close(context.Context) error { return nil }

// Sweep takes away what keepers that were killed left: nothing.
func Sweep(context.Context) error { return nil }

// DisksOf finds the disks that hold a file, on Linux.
func DisksOf(path string) ([]uint64, error) {
	return nil, &Error{Op: "looking for the disk", Path: path, Kind: ErrNotSupported, Err: errLinux}
}

// CeilingHere is what bounds this process: nothing that is known.
func CeilingHere() (Ceiling, error) { return Ceiling{}, nil }
