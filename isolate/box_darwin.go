package isolate

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
)

// errLinux is why a box of macOS cannot do something.
var errLinux = errors.New("needs Linux")

func unsupported(op string) error { return &Error{Op: op, Kind: ErrNotSupported, Err: errLinux} }

func hostError(op string, err error) error {
	kind := ErrNotSupported
	var errno syscall.Errno
	if errors.As(err, &errno) {
		kind = kindOf(errno)
	}
	return &Error{Op: op, Kind: kind, Err: err}
}

// Start makes a box that runs its commands under sandbox-exec(1), and runs command
// there where it is not nil. It is the weaker level: without [Spec.BestEffort] it is
// refused with what is lacking. A command runs in the copy itself, at another path
// than the real tree's. Errors: [*Error]; [*CommandError].
func Start(ctx context.Context, spec Spec, command *Command) (*Box, *Process, error) {
	b, err := Begin(ctx, spec, command)
	if err != nil {
		return nil, nil, err
	}
	return b.Start(ctx, spec)
}

// A Beginning is a box that is not made yet.
type Beginning struct{ command *Command }

// Begin looks at the command alone: there is nothing to prepare.
func Begin(ctx context.Context, spec Spec, command *Command) (*Beginning, error) {
	if err := ctx.Err(); err != nil {
		return nil, &Error{Op: "starting", Kind: ErrInterrupted, Err: err}
	}
	if command != nil {
		if err := command.check(spec); err != nil {
			return nil, err
		}
	}
	return &Beginning{command}, nil
}

// Start makes the box and runs the command.
func (b *Beginning) Start(ctx context.Context, spec Spec) (*Box, *Process, error) {
	if err := spec.Check(); err != nil {
		return nil, nil, err
	}
	level, err := spec.settle()
	if err != nil {
		return nil, nil, err
	}
	spec.Network = level.Network
	text, err := spec.profile()
	if err != nil {
		return nil, nil, err
	}
	box := &Box{spec: spec, level: level, profile: text, idle: make(chan struct{}), done: make(chan struct{}), procs: map[*Process]bool{}}
	if b.command == nil {
		return box, nil, nil
	}
	p, err := box.Exec(ctx, *b.command)
	if err != nil {
		return nil, nil, errors.Join(err, box.Close(context.WithoutCancel(ctx)))
	}
	return box, p, nil
}

// Close takes a beginning back; nil is none.
func (*Beginning) Close() error { return nil }

// A Box is what its commands have in common: a profile. Each command leads a session
// of its own, by which it is stopped and ended; what leaves that is not found again.
type Box struct {
	spec    Spec
	level   Level
	profile string
	done    chan struct{}

	mu     sync.Mutex
	procs  map[*Process]bool
	idle   chan struct{}
	closed bool
}

// PID is 0: there is no process that the others descend from.
func (*Box) PID() int { return 0 }

// Level says what is really in force.
func (b *Box) Level() Level { return b.level }

// Idle is closed when no command is left.
func (b *Box) Idle() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.idle
}

// Done is closed when the box is gone.
func (b *Box) Done() <-chan struct{} { return b.done }

// Close kills the session of every command. Safe to repeat.
func (b *Box) Close(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	close(b.done)
	return b.signal(syscall.SIGKILL)
}

// Freeze stops the session of every command.
func (b *Box) Freeze(context.Context) error { return b.locked(syscall.SIGSTOP) }

// Thaw lets them go on.
func (b *Box) Thaw(context.Context) error { return b.locked(syscall.SIGCONT) }

// Clear kills them.
func (b *Box) Clear(context.Context) error { return b.locked(syscall.SIGKILL) }

func (b *Box) locked(sig syscall.Signal) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.signal(sig)
}

func (b *Box) signal(sig syscall.Signal) error {
	var errs []error
	for p := range b.procs {
		if err := syscall.Kill(-p.pid, sig); err != nil && err != syscall.ESRCH {
			errs = append(errs, hostError("sending a signal", err))
		}
	}
	return errors.Join(errs...)
}

// Root opens the box's own "/", on Linux.
func (*Box) Root() (*os.File, error) { return nil, unsupported("opening the root") }

// Tun is the other end of [NetworkEdge], on Linux.
func (*Box) Tun() *os.File { return nil }

// Tell writes a file into the box's /run, on Linux.
func (*Box) Tell(string, []byte) error { return unsupported("telling the sandbox") }

// Dial connects to a port of the box's own loopback, on Linux.
func (*Box) Dial(context.Context, uint16) (net.Conn, netip.Addr, error) {
	return nil, netip.Addr{}, unsupported("connecting to the sandbox")
}

// SetRlimits replaces [Spec.Rlimits], on Linux.
func (*Box) SetRlimits(_ context.Context, list []Rlimit) error {
	if len(list) == 0 {
		return nil
	}
	return unsupported("setting limits")
}

// OpenViews opens each of mounts, which must be a directory as it is, for reading.
func OpenViews(_ context.Context, mounts []Mount) ([]*os.File, error) { return openDirs(mounts) }

// OpenForks does as [OpenViews].
func OpenForks(_ context.Context, mounts []Mount) ([]*os.File, error) { return openDirs(mounts) }

func openDirs(mounts []Mount) (dirs []*os.File, err error) {
	for _, m := range mounts {
		var dir *os.File
		if m.Source == "" {
			err = unsupported("opening a view")
		} else if dir, err = os.Open(m.Source); err != nil {
			err = hostError("opening a view", err)
		}
		if err != nil {
			for _, d := range dirs {
				d.Close()
			}
			return nil, err
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}
