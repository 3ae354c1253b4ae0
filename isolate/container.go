//go:build linux

package isolate

import (
	"context"
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate/internal/stopped"
	"github.com/snapfs/snapfs/isolate/internal/sysv"
	"github.com/snapfs/snapfs/isolate/launch"
)

// A Container is a set of namespaces with processes in it, which [Prepared.Start] makes and Close ends. All
// methods are safe for concurrent use.
type Container struct {
	level   Level
	cgroups []*os.File
	shown   []*os.File // the roots of FUSE mounts that map ids in user space

	// reqMu orders requests to pid 1, freezes, and every use of the image. The image is freed under reqMu
	// after done is closed.
	reqMu   sync.Mutex
	builder *builder
	regions [2]launch.Region // the two parts of the image for requests, used in turn
	current int              // index of the region written last
	reports chan report
	frozen  thawer // undoes a freeze; nil while not frozen

	continues stopped.Continues // SIGCONT that waits for the thaw
	observing sync.WaitGroup    // the goroutine that passes on observed system calls, see observe

	mu      sync.Mutex
	ctl     int // the supervisor's end of the control socket
	pid     int // of pid 1, on the host
	pidfd   int
	root    int // descriptor of the root's mount, or -1
	tun     int // see Tun, or -1
	objects sysv.Objects
	sent    int // number of the last request
	pending *Process
	procs   map[int]*Process // by pid inside the container
	ran     bool
	isIdle  bool
	idle    chan struct{}
	done    chan struct{}
}

func planError(err error) error {
	if errors.Is(err, launch.ErrImageFull) {
		return &errs.Error{Op: "starting", Kind: errs.ErrInvalid, Err: unix.E2BIG}
	}
	return err
}

// duplicate duplicates the files of the command's standard streams to descriptors above 2, because pid 1 uses
// 0, 1 and 2 itself. The caller closes the duplicates, also after an error.
func (c *Command) duplicate() ([]int, error) {
	var fds []int
	files, _ := c.files()
	for _, f := range files {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return fds, &errs.Error{Op: "handing over " + f.Name(), Kind: errs.ErrInvalid, Err: err}
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// letReopen allows everyone to open the anonymous pipes among the standard streams, for a command that opens
// /dev/stderr. Such a pipe belongs to the supervisor's user, whom a container with ids of its own does not
// have. Only processes that may inspect one with the pipe can reach it, so nobody else gains access.
func (c *Command) letReopen(ids IDs) {
	files, _ := c.files()
	for _, f := range files {
		var fs unix.Statfs_t
		if fd := int(f.Fd()); ids != Same && c.Guarded == "" && unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.PIPEFS_MAGIC {
			_ = unix.Fchmod(fd, 0o666)
		}
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Exec runs command in the container, under the same restrictions as its other processes.
//
// Cost: a fork and exec. Errors: as [Prepared.Start]; [errs.ErrClosed]; [errs.ErrBusy] while the container is
// frozen.
func (c *Container) Exec(ctx context.Context, command Command) (*Process, error) {
	if err := command.check(c.builder.spec); err != nil {
		return nil, err
	}
	c.reqMu.Lock()
	defer c.reqMu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, &errs.Error{Op: "starting", Kind: errs.ErrInterrupted, Err: err}
	}
	if c.frozen != nil {
		return nil, &errs.Error{Op: "starting", Kind: errs.ErrBusy, Err: errors.New("the sandbox is frozen")}
	}
	if c.ended() {
		return nil, closed("starting")
	}
	c.builder.Rewind(c.nextRegion())
	first, l := c.builder.command(command)
	if c.builder.Err != nil {
		return nil, planError(c.builder.Err)
	}
	if err := c.submit(first, &command); err != nil {
		return nil, err
	}
	return c.launched(l)
}

// nextRegion returns the part of the image, the memory shared with pid 1, into which the next request to pid
// 1 is written. Of two parts it is the one that the last request did not use, because pid 1 may still execute
// that request's last calls. The caller holds reqMu.
func (c *Container) nextRegion() launch.Region {
	c.current = 1 - c.current
	return c.regions[c.current]
}

// submit sends pid 1 a request: system calls that the supervisor has written into the image (the memory that
// it shares with pid 1), beginning with first. It does not wait for the reply. command is the one to start,
// or nil. The caller holds reqMu.
func (c *Container) submit(first launch.Step, command *Command) error {
	c.builder.p1.enter.Next(first)
	c.builder.resetInbox()
	var rights []byte
	var files []*os.File
	c.mu.Lock()
	c.sent++
	number := c.sent
	if c.isIdle { // pid 1 reports idle again after this request
		c.isIdle, c.idle = false, make(chan struct{})
	}
	if command != nil {
		c.pending = newProcess(&c.continues)
		files = command.passed()
		command.letReopen(c.builder.spec.IDs)
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	err := unix.EBADF
	if c.ctl >= 0 {
		err = sendRequest(c.ctl, number, rights)
	}
	c.mu.Unlock()
	if err != 0 {
		return &errs.Error{Op: "starting", Kind: errs.ErrClosed, Err: err}
	}
	return nil
}

// launched waits for pid 1's report of the last request, which was to start a command. It returns the process
// that was started, or the error of its start, which pid 1 left at the position l of the memory that it
// shares with the supervisor. The caller closes the process.
func (c *Container) launched(l execResult) (*Process, error) {
	r, ok := c.awaitReport()
	if !ok {
		return nil, closed("starting")
	}
	c.mu.Lock()
	p := c.pending
	c.pending = nil
	c.mu.Unlock()
	if r.kind == reportRefused {
		where, errno := c.builder.Failure()
		return nil, &errs.Error{Op: where.Stage, Path: where.Path, Kind: launch.KindOf(errno), Err: errno}
	}
	path, err := c.builder.outcome(l)
	if err != nil {
		p.Close() //nolint:errcheck // it never was
		return nil, err
	}
	c.observeStart(p, path, l.dir)
	return p, nil
}

// awaitReport waits for pid 1's report of a request; ok is false if the container ended instead. A report
// that pid 1 sent before it ended is returned too: the command has run and must not be started again.
func (c *Container) awaitReport() (r report, ok bool) {
	select {
	case r = <-c.reports:
		return r, true
	case <-c.done:
	}
	select {
	case r = <-c.reports:
		return r, true
	default:
		return r, false
	}
}

// PID returns the process id, on the host, of the container's pid 1, the process from which all others in the
// container descend.
func (c *Container) PID() int { return c.pid }

// Level returns the protections that are in force in the container. With [Spec.BestEffort] they may be less
// than the Spec requires.
func (c *Container) Level() Level { return c.level }

// Root opens the container's "/" as an O_PATH directory on the host, with every mount below it. The caller
// closes it, and must do so before the layers of its trees are moved. Errors: [errs.ErrClosed].
func (c *Container) Root() (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.root < 0 {
		return nil, closed("opening the root")
	}
	fd, err := unix.Openat(c.root, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, launch.HostError("opening the root", err)
	}
	return os.NewFile(uintptr(fd), "/"), nil
}

// Idle returns a channel that is closed when the container has run at least one process, none is left, and no
// Exec is in progress. Daemons count as processes. Exec works afterwards, and Idle then returns a new channel.
func (c *Container) Idle() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.idle
}

// Done returns a channel that is closed when the container has ended, for any reason. Close, or the death of
// its pid 1, ends it.
func (c *Container) Done() <-chan struct{} { return c.done }

// Close kills every process in the container and returns when all of them and all mounts are gone. It may be
// called again. If ctx ends first, the kernel still completes the kill.
//
// Cost: 1 ms, and more with many processes. Errors: [errs.ErrInterrupted].
func (c *Container) Close(ctx context.Context) error {
	c.kill()
	c.release()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return &errs.Error{Op: "ending the sandbox", Kind: errs.ErrInterrupted, Err: ctx.Err()}
	}
}

// kill ends the container's pid 1; the kernel then ends every process in its pid namespace.
func (c *Container) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pidfd >= 0 {
		unix.PidfdSendSignal(c.pidfd, unix.SIGKILL, nil, 0) //nolint:errcheck // ESRCH: it is gone
	}
}

func (c *Container) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}
