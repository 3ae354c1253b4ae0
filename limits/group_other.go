//go:build !linux

package limits

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/snapfs/snapfs/errs"
)

var errLinux = errors.New("needs Linux")

// A Group holds the limits of one container. Only Linux enforces any.
type Group struct{ enforced []Enforcement }

// Start creates a group that enforces nothing: each limit is an error that matches [errs.ErrNotSupported],
// unless [Options.BestEffort] is set.
func Start(_ context.Context, _ string, l Limits, o Options) (*Group, error) {
	g := &Group{}
	if err := l.Check(); err != nil {
		return nil, err
	}
	for _, a := range l.entries() {
		if !o.BestEffort {
			return nil, &errs.Error{Op: "limiting " + string(a.part), Kind: errs.ErrNotSupported, Err: errLinux}
		}
		g.enforced = append(g.enforced, Enforcement{Part: a.part, Value: a.text, By: ByNothing, Note: errLinux.Error()})
	}
	return g, nil
}

// Level returns the limits, none of which is enforced on this system.
func (g *Group) Level() []Enforcement { return slices.Clone(g.enforced) }

// Set returns an error for every limit, because limits need Linux.
func (g *Group) Set(_ context.Context, l Limits) error {
	if err := l.Check(); err != nil {
		return err
	}
	for _, a := range l.entries() {
		return &errs.Error{Op: "limiting " + string(a.part), Kind: errs.ErrNotSupported, Err: errLinux}
	}
	return nil
}

// Cgroups returns nil: control groups need Linux.
func (*Group) Cgroups() []*os.File { return nil }

// Rlimits returns nil, because limits need Linux.
func (*Group) Rlimits() []Rlimit { return nil }

// Attach does nothing on this system.
func (*Group) Attach(int) error { return nil }

// ProcessFailed does nothing on this system.
func (*Group) ProcessFailed() {}

// Usage returns an empty Usage: this system measures nothing.
func (*Group) Usage() (Usage, error) { return Usage{}, nil }

// Used returns 0 twice: this system measures nothing.
func (*Group) Used() (cpu time.Duration, memory int64) { return 0, 0 }

// LimitHit returns false: no limit is enforced.
func (*Group) LimitHit() (LimitHit, bool) { return LimitHit{}, false }

// Close does nothing on this system.
func (*Group) Close(context.Context) error { return nil }

// Sweep does nothing: control groups need Linux.
func Sweep(context.Context) error { return nil }

// DisksOf returns an error, because it needs Linux.
func DisksOf(path string) ([]uint64, error) {
	return nil, &errs.Error{Op: "looking for the disk", Path: path, Kind: errs.ErrNotSupported, Err: errLinux}
}

// CeilingHere returns no limits: control groups need Linux.
func CeilingHere() (Ceiling, error) { return Ceiling{}, nil }
