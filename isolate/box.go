//go:build linux

package isolate

import (
	"context"
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A Box is a set of namespaces with processes in it. All methods may be called
// from many goroutines at once.
type Box struct {
	level   Level
	cgroups []*os.File
	shown   []*os.File // the roots of trees that a process shows

	// ask is held by whoever makes pid 1 do something, a request or a freeze, and
	// uses the image: it is given back after done is closed, under ask.
	ask    sync.Mutex
	b      *builder
	rooms  [2]room // of the image, where requests are written in turn
	turn   int     // the one that was written last
	answer chan report
	frozen thawer // how to undo a freeze, or nil

	mu      sync.Mutex
	ctl     int // the keeper's end of the control socket
	pid     int // of pid 1, on the host
	pidfd   int
	root    int // descriptor of the root's mount, or -1
	tun     int // see Tun, or -1
	sent    int // number of the last request
	pending *Process
	procs   map[int]*Process // by their numbers inside
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

// duplicate makes descriptors of the command's streams that are none of 0, 1
// and 2, which pid 1 uses itself.
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

// Exec runs one more command in the box, confined exactly as all others are.
// Cost: that of a fork and exec. Errors: as [Start]; [ErrClosed]; [ErrBusy]
// while the box is frozen.
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

// nextRoom is where the next request is written. The caller holds ask.
func (b *Box) nextRoom() room {
	b.turn = 1 - b.turn
	return b.rooms[b.turn]
}

// submit makes pid 1 work through the steps from first on, and waits until it
// has reported. The caller holds ask.
func (b *Box) submit(first step, command *Command) error {
	b.b.p1.enter.next(first)
	b.b.resetInbox()
	var rights []byte
	var files []*os.File
	b.mu.Lock()
	b.sent++
	number := b.sent
	if b.isIdle { // pid 1 says so again when it is
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

// launched waits for the report of the request that was made last, and answers
// with its process.
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

// hear waits for the report of a request, or the end of the box. One that pid 1 made
// before its end counts: the command has run, and is not to be started again.
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

// PID is the number of pid 1 on the host.
func (b *Box) PID() int { return b.pid }

// Level says what is really in force.
func (b *Box) Level() Level { return b.level }

// Root opens the box's "/" with everything mounted beneath it, as it is seen
// from outside, as an O_PATH directory. The caller closes it, and does so before
// the layers beneath are moved. Errors: [ErrClosed].
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

// Idle is closed when no process is left in the box and no Exec is under way,
// once there has been a process. Daemons count as processes. After that, Exec
// still works, and from then on Idle is another channel.
func (b *Box) Idle() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.idle
}

// Done is closed when the box is gone, whatever ended it.
func (b *Box) Done() <-chan struct{} { return b.done }

// Close kills everything in the box and answers when every process and mount of
// it is gone. Safe to repeat. When ctx ends first the killing goes on.
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

// kill ends pid 1, and by that everything in its pid namespace.
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
