package isolate

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate/launch"
)

// errLinux is the cause in every error of kind [errs.ErrNotSupported] that this package returns on macOS.
var errLinux = errors.New("needs Linux")

func unsupported(op string) error {
	return &errs.Error{Op: op, Kind: errs.ErrNotSupported, Err: errLinux}
}

// Observes reports false: macOS observes no system calls for [Spec.Observe].
func Observes() bool { return false }

// A Prepared is a container that is not created yet, as on Linux; on macOS it holds only the command.
type Prepared struct{ command *Command }

// Prepare checks the command. On macOS a container needs no other preparation.
func Prepare(ctx context.Context, spec Spec, command *Command) (*Prepared, error) {
	if err := ctx.Err(); err != nil {
		return nil, &errs.Error{Op: "starting", Kind: errs.ErrInterrupted, Err: err}
	}
	if command != nil {
		if err := command.check(spec); err != nil {
			return nil, err
		}
	}
	return &Prepared{command}, nil
}

// Start creates the container, which runs its commands under sandbox-exec(1), and runs the command. Protection is
// weaker than on Linux: without [Spec.BestEffort], Start returns an error that lists the missing parts. A command
// runs in the copy itself, whose path differs from the real tree's. Errors: [*errs.Error]; [*CommandError].
func (b *Prepared) Start(ctx context.Context, spec Spec) (*Container, *Process, error) {
	if err := spec.check(); err != nil {
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
	c := &Container{spec: spec, level: level, profile: text, idle: make(chan struct{}), done: make(chan struct{}), procs: map[*Process]bool{}}
	if b.command == nil {
		return c, nil, nil
	}
	p, err := c.Exec(ctx, *b.command)
	if err != nil {
		return nil, nil, errors.Join(err, c.Close(context.WithoutCancel(ctx)))
	}
	return c, p, nil
}

// Close does nothing on macOS.
func (*Prepared) Close() error { return nil }

// A Container is a sandbox-exec profile and the commands that run under it. Each command leads
// a session of its own, whose processes get the signals that stop and end it; a process that
// leaves the session escapes them.
type Container struct {
	spec    Spec
	level   Level
	profile string
	done    chan struct{}

	mu     sync.Mutex
	procs  map[*Process]bool
	idle   chan struct{}
	closed bool
}

// PID returns 0: macOS containers have no common ancestor process.
func (*Container) PID() int { return 0 }

// Unreached returns false: macOS does not count what a sandbox refused.
func (*Container) Unreached() bool { return false }

// Level returns the protections that are in force.
func (c *Container) Level() Level { return c.level }

// Idle returns a channel that is closed when no command is left.
func (c *Container) Idle() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.idle
}

// Done returns a channel that is closed when the container has ended.
func (c *Container) Done() <-chan struct{} { return c.done }

// Close kills the session of every command. It may be called again.
func (c *Container) Close(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	close(c.done)
	return c.signal(syscall.SIGKILL)
}

// Freeze sends SIGSTOP to the session of every command.
func (c *Container) Freeze(context.Context) error { return c.locked(syscall.SIGSTOP) }

// Thaw sends SIGCONT to the session of every command.
func (c *Container) Thaw(context.Context) error { return c.locked(syscall.SIGCONT) }

// Clear sends SIGKILL to the session of every command.
func (c *Container) Clear(context.Context) error { return c.locked(syscall.SIGKILL) }

// Stored returns nothing: a container on macOS has no filesystems in memory of its own.
func (c *Container) Stored() (bytes int64, devices []uint64, err error) { return 0, nil, nil }

func (c *Container) locked(sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.signal(sig)
}

func (c *Container) signal(sig syscall.Signal) error {
	var failures []error
	for p := range c.procs {
		if err := syscall.Kill(-p.pid, sig); err != nil && err != syscall.ESRCH {
			failures = append(failures, launch.HostError("sending a signal", err))
		}
	}
	return errors.Join(failures...)
}

// Tun returns nil: [NetworkEdge] needs Linux.
func (*Container) Tun() *os.File { return nil }

// Notify returns an error, because it needs Linux.
func (*Container) Notify(string, []byte) error { return unsupported("notifying the sandbox") }

// Dial returns an error, because it needs Linux.
func (*Container) Dial(context.Context, uint16) (net.Conn, netip.Addr, error) {
	return nil, netip.Addr{}, unsupported("connecting to the sandbox")
}

// OpenViews opens each of mounts, which must be plain directories, for reading.
func OpenViews(_ context.Context, mounts []Mount) ([]*os.File, error) { return openDirs(mounts) }

// OpenForks opens each of mounts, which must be plain directories, as [OpenViews] does.
func OpenForks(_ context.Context, mounts []Mount) ([]*os.File, error) { return openDirs(mounts) }

func openDirs(mounts []Mount) (dirs []*os.File, err error) {
	for _, m := range mounts {
		var dir *os.File
		if m.Source == "" {
			err = unsupported("opening a view")
		} else if dir, err = os.Open(m.Source); err != nil {
			err = launch.HostError("opening a view", err)
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
