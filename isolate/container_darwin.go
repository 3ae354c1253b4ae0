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

// A Prepared is a container that is not created yet. On macOS, where nothing can be prepared, it holds only
// the command.
type Prepared struct{ command *Command }

// Prepare checks the command that [Prepared.Start] will run. On macOS a container needs no other preparation.
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

// Begin does the same as [Prepare] without a command.
func Begin(ctx context.Context, spec Spec) (*Prepared, error) { return Prepare(ctx, spec, nil) }

// Equip does nothing: on macOS a container has no parts to create.
func (*Prepared) Equip() error { return nil }

// Start creates the container, which runs its commands under sandbox-exec(1), and runs the command.
// Protection is weaker than on Linux: without [Spec.BestEffort], Start returns an error that lists the
// missing parts. macOS cannot mount the copy of a tree at the tree's path, so a command runs in the copy and
// sees the copy's path. Errors: [*errs.Error]; [*CommandError].
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

// Close would end a container that was not started. It does nothing on macOS, where a Prepared has no
// process.
func (*Prepared) Close() error { return nil }

// A Container is a sandbox-exec profile and the commands that run under it. Each command leads a session of
// its own, whose processes get the signals that stop and end it; a process that leaves the session escapes
// them.
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

// PID returns 0. On Linux it returns the process from which all others in the container descend; macOS
// containers have none.
func (*Container) PID() int { return 0 }

// Unreached would report whether a process tried to reach a network that it does not have. It returns false:
// macOS does not count this.
func (*Container) Unreached() bool { return false }

// Level returns the protections that are in force for the container's commands: on macOS fewer than on Linux.
func (c *Container) Level() Level { return c.level }

// Idle returns a channel that is closed when no command of the container is left running.
func (c *Container) Idle() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.idle
}

// Done returns a channel that is closed when the container has ended, by [Container.Close].
func (c *Container) Done() <-chan struct{} { return c.done }

// Close ends the container: it kills every command with all processes of its session. It does not wait for
// their end. It may be called again.
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

// Freeze stops the container's processes: it sends SIGSTOP to the session of every command.
func (c *Container) Freeze(context.Context) error { return c.locked(syscall.SIGSTOP) }

// Thaw lets the container's processes continue after Freeze: it sends SIGCONT to the session of every
// command.
func (c *Container) Thaw(context.Context) error { return c.locked(syscall.SIGCONT) }

// Clear kills the container's processes, and leaves the container usable: it sends SIGKILL to the session of
// every command.
func (c *Container) Clear(context.Context) error { return c.locked(syscall.SIGKILL) }

// Stored would return the bytes in the container's own filesystems in memory, such as /tmp. It returns 0,
// since a container on macOS has none.
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

// Tun returns nil. The network of a container whose packets a proxy reads from it ([NetworkEdge]) exists only
// on Linux.
func (*Container) Tun() *os.File { return nil }

// Notify would write a file in the container for its processes to read. It returns an error, because it needs
// Linux.
func (*Container) Notify(string, []byte) error { return unsupported("notifying the sandbox") }

// Dial would connect to a TCP port inside of the container. It returns an error, because containers have a
// network of their own only on Linux.
func (*Container) Dial(context.Context, uint16) (net.Conn, netip.Addr, error) {
	return nil, netip.Addr{}, unsupported("connecting to the sandbox")
}

// OpenViews opens the trees of mounts for reading, for a caller that compares them outside of a container. On
// macOS each must be a plain directory.
func OpenViews(_ context.Context, mounts []Mount) ([]*os.File, error) { return openDirs(mounts) }

// OpenForks opens the trees of mounts for a caller that writes to them outside of a container. On macOS it
// does the same as [OpenViews].
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
