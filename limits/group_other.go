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

// A Group holds the limits of one container. This is the stub for systems other than Linux, where no limit
// can be enforced; the group only remembers those it was given.
type Group struct{ enforced []Enforcement }

// Start creates a [Group] that enforces nothing, on systems other than Linux: each limit in l is an error
// that matches [errs.ErrNotSupported], unless [Options.BestEffort] is set.
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

// Level returns how each limit of the container is enforced: on this system, other than Linux, each by
// [ByNothing].
func (g *Group) Level() []Enforcement { return slices.Clone(g.enforced) }

// Set would change the limits of the container. It returns an error for every limit, because snapfs enforces
// limits only on Linux.
func (g *Group) Set(_ context.Context, l Limits) error {
	if err := l.Check(); err != nil {
		return err
	}
	for _, a := range l.entries() {
		return &errs.Error{Op: "limiting " + string(a.part), Kind: errs.ErrNotSupported, Err: errLinux}
	}
	return nil
}

// Cgroups returns nil: the container enters no control groups, which exist only on Linux.
func (*Group) Cgroups() []*os.File { return nil }

// Rlimits returns nil: snapfs sets no limits of single processes (setrlimit(2)) on systems other than Linux.
func (*Group) Rlimits() []Rlimit { return nil }

// Attach would name pid 1 of the container and start watching its limits. It does nothing, since this system
// enforces none.
func (*Group) Attach(int) error { return nil }

// ProcessFailed would check whether a process of the container failed because of a limit. It does nothing,
// since this system enforces none.
func (*Group) ProcessFailed() {}

// Usage returns an empty Usage: snapfs measures a container's resources only on Linux.
func (*Group) Usage() (Usage, error) { return Usage{}, nil }

// Used returns 0 for the container's CPU time and memory: snapfs measures them only on Linux.
func (*Group) Used() (cpu time.Duration, memory int64) { return 0, 0 }

// LimitHit returns false: the container hits no limit, since snapfs enforces none on this system.
func (*Group) LimitHit() (LimitHit, bool) { return LimitHit{}, false }

// Close would remove the container's control groups. It does nothing, since only Linux has any.
func (*Group) Close(context.Context) error { return nil }

// Sweep would remove the control groups that killed supervisors left. It does nothing, since only Linux has
// control groups.
func Sweep(context.Context) error { return nil }

// DisksOf would find the disks below path, to limit how fast a container reads and writes them. It returns an
// error that says it needs Linux.
func DisksOf(path string) ([]uint64, error) {
	return nil, &errs.Error{Op: "looking for the disk", Path: path, Kind: errs.ErrNotSupported, Err: errLinux}
}

// CeilingHere returns an empty [Ceiling]: the limits that a control group sets for snapfs itself exist only
// on Linux.
func CeilingHere() (Ceiling, error) { return Ceiling{}, nil }
