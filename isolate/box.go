//go:build linux

package isolate

import (
	"context"
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Container is a set of namespaces with processes in it. All methods are safe for concurrent use.
type Box struct {
	level   Level
	cgroups []*os.File
	shown   []*os.File // the roots of FUSE mounts that map ids in user space

	// reqMu serializes requests to pid 1, freezes, and every use of the image. The image is freed under reqMu
	// after done is closed.
	ask    sync.Mutex
	b      *builder
	rooms  [2]room // the two parts of the image for requests, used in turn
	turn   int     // index of the region written last
	answer chan report
	frozen thawer // undoes a freeze; nil while not frozen

	mu      sync.Mutex
	ctl     int // the supervisor's end of the control socket
	pid     int // of pid 1, on the host
	pidfd   int
	root    int // descriptor of the root's mount, or -1
	tun     int // see Tun, or -1
	sent    int // number of the last request
	pending *Process
	procs   map[int]*Process // by pid inside the container
	ran     bool
	isIdle  bool
	idle    chan struct{}
	done    chan struct{}
}

func planError(err error) error {
	if errors.Is(err, errImageFull) {
		return &Error{Op: "starting", Kind: ErrInvalid, Err: unix.E2BIG}
	}
	return err
}

// duplicate duplicates the streams of the command to descriptors above 2, because pid 1 uses 0, 1 and 2 itself.
func (c *Command) duplicate() ([]int, error) {
	var fds []int
	files, _ := c.files()
	for _, f := range files {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return fds, &Error{Op: "handing over " + f.Name(), Kind: ErrInvalid, Err: err}
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Exec runs one more command in the container, confined like all others.
//
// Cost: a fork and exec. Errors: as [Start]; [ErrClosed]; [ErrBusy] while the container is frozen.
func (b *Box) Exec(ctx context.Context, command Command) (*Process, error) {
	if err := command.check(b.b.spec); err != nil {
		return nil, err
	}
	b.ask.Lock()
	defer b.ask.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, &Error{Op: "starting", Kind: ErrInterrupted, Err: err}
	}
	if b.frozen != nil {
		return nil, &Error{Op: "starting", Kind: ErrBusy, Err: errors.New("the sandbox is frozen")}
	}
	if b.ended() {
		return nil, &Error{Op: "starting", Kind: ErrClosed}
	}
	b.b.rewind(b.nextRoom())
	first, l := b.b.command(command)
	if b.b.err != nil {
		return nil, planError(b.b.err)
	}
	if err := b.submit(first, &command); err != nil {
		return nil, err
	}
	return b.launched(l)
}

// nextRegion returns the region for the next request. The caller holds reqMu.
func (b *Box) nextRoom() room {
	b.turn = 1 - b.turn
	return b.rooms[b.turn]
}

// submit sends pid 1 a request that begins at step first. It does not wait for the report. The caller holds
// reqMu.
func (b *Box) submit(first step, command *Command) error {
	b.b.p1.enter.next(first)
	b.b.resetInbox()
	var rights []byte
	var files []*os.File
	b.mu.Lock()
	b.sent++
	number := b.sent
	if b.isIdle { // pid 1 reports idle again after this request
		b.isIdle, b.idle = false, make(chan struct{})
	}
	if command != nil {
		b.pending = newProcess()
		files, _ = command.files()
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	err := unix.EBADF
	if b.ctl >= 0 {
		err = sendRequest(b.ctl, number, rights)
	}
	b.mu.Unlock()
	if err != 0 {
		return &Error{Op: "starting", Kind: ErrClosed, Err: err}
	}
	return nil
}

// launched waits for the report of the last request and returns the process that it started.
func (b *Box) launched(l launch) (*Process, error) {
	r, ok := b.hear()
	if !ok {
		return nil, &Error{Op: "starting", Kind: ErrClosed}
	}
	b.mu.Lock()
	p := b.pending
	b.pending = nil
	b.mu.Unlock()
	if r.kind == reportRefused {
		where, errno := b.b.failure()
		return nil, &Error{Op: where.stage, Path: where.path, Kind: kindOf(errno), Err: errno}
	}
	if err := b.b.outcome(l); err != nil {
		p.Close() //nolint:errcheck // it never was
		return nil, err
	}
	return p, nil
}

// awaitReport waits for the report of a request or for the end of the container. A report that pid 1 sent
// before it ended is returned too: the command has run and must not be started again.
func (b *Box) hear() (r report, ok bool) {
	select {
	case r = <-b.answer:
		return r, true
	case <-b.done:
	}
	select {
	case r = <-b.answer:
		return r, true
	default:
		return r, false
	}
}

// PID returns the pid of pid 1 on the host.
func (b *Box) PID() int { return b.pid }

// Level returns the protections that are in force.
func (b *Box) Level() Level { return b.level }

// Root opens the container's "/" as an O_PATH directory on the host, with every mount below it. The caller
// closes it, and must do so before the layers of its trees are moved. Errors: [ErrClosed].
func (b *Box) Root() (*os.File, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.root < 0 {
		return nil, &Error{Op: "opening the root", Kind: ErrClosed}
	}
	fd, err := unix.Openat(b.root, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, hostError("opening the root", err)
	}
	return os.NewFile(uintptr(fd), "/"), nil
}

// Idle returns a channel that is closed when the container has run at least one process, none is left, and no
// Exec is in progress. Daemons count as processes. Exec works afterwards, and Idle then returns a new channel.
func (b *Box) Idle() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.idle
}

// Done returns a channel that is closed when the container has ended, for any reason.
func (b *Box) Done() <-chan struct{} { return b.done }

// Close kills every process in the container and returns when all of them and all mounts are gone. It may be
// called again. If ctx ends first, the kernel still completes the kill.
//
// Cost: 1 ms, and more with many processes. Errors: [ErrInterrupted].
func (b *Box) Close(ctx context.Context) error {
	b.kill()
	b.release()
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return &Error{Op: "ending the sandbox", Kind: ErrInterrupted, Err: ctx.Err()}
	}
}

// kill ends pid 1; the kernel then ends every process in its pid namespace.
func (b *Box) kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pidfd >= 0 {
		unix.PidfdSendSignal(b.pidfd, unix.SIGKILL, nil, 0) //nolint:errcheck // ESRCH: it is gone
	}
}

func (b *Box) ended() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}
