package isolate

import (
	"encoding/binary"
	"errors"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// keep starts pid 1 and stays with it to the end, on a thread of its own:
// the kernel kills pid 1 when the thread that forked it ends. It closes
// streams, which pid 1 has then.
func (b *Box) keep(first step, streams []int, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer func() {
		close(b.done)
		go func() { // somebody may still be reading why a request ended
			b.ask.Lock()
			defer b.ask.Unlock()
			b.b.free()
		}()
	}()
	err := b.begin(first)
	closeAll(append(streams, b.b.p1.ctl))
	if err != nil {
		started <- err
		b.end()
		return
	}
	defer func() { later(b.b.trash...) }()
	if b.b.spec.IDs != Same {
		if err := b.b.give(b.pid, b.ctl); err != nil {
			b.kill()
			b.end()
			started <- err
			return
		}
	}
	standing := false
	for {
		r, err := receive(b.ctl)
		if err != nil {
			break
		}
		if !standing && r.kind != reportRoot {
			standing = true
			started <- nil
			later(b.b.trash...)
			b.b.trash = nil
		}
		b.handle(r)
	}
	b.end()
	if !standing {
		started <- b.startError()
	}
}

// begin forks pid 1.
func (b *Box) begin(first step) error {
	pid, pidfd, err := b.b.start(first, unix.CLONE_NEWUSER|unix.CLONE_NEWNS|unix.CLONE_NEWPID, b.b.host.birth)
	if err != nil {
		return cloneError(err)
	}
	b.mu.Lock()
	b.pid, b.pidfd = pid, pidfd
	b.mu.Unlock()
	return nil
}

// end waits for pid 1, whose end the kernel makes the last of its namespace,
// and lets go of everything.
func (b *Box) end() {
	if b.pid > 0 {
		for {
			_, err := unix.Wait4(b.pid, nil, unix.WALL, nil)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, fd := range []*int{&b.ctl, &b.pidfd, &b.root} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
	for _, p := range b.procs {
		p.end(Status{Signal: syscall.SIGKILL})
	}
	if !b.isIdle {
		b.isIdle = true
		close(b.idle)
	}
}

// startError is why pid 1 ended before it stood.
func (b *Box) startError() error {
	where, errno := b.b.failure()
	if errno == 0 {
		return &Error{Op: "starting", Kind: ErrInterrupted, Err: errors.New("pid 1 was killed")}
	}
	return &Error{Op: where.stage, Path: where.path, Kind: kindOf(errno), Err: errno, Hints: hintsFor(errno)}
}

// handle takes a report in.
func (b *Box) handle(r report) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch r.kind {
	case reportRoot:
		b.root = r.take(0)
	case reportStarted:
		if p := b.pending; p != nil {
			p.begin(r.pid, r.take(0), r.take(1))
			b.procs[r.pid] = p
			b.ran = true
		}
		b.answer <- r
	case reportRefused:
		b.answer <- r
	case reportExited:
		if p := b.procs[r.pid]; p != nil {
			delete(b.procs, r.pid)
			p.end(statusOf(syscall.WaitStatus(r.status)))
		}
	case reportIdle:
		if b.ran && r.request == b.sent && !b.isIdle {
			b.isIdle = true
			close(b.idle)
		}
	}
	closeAll(r.fds)
}

// take answers with a descriptor of the report, or -1.
func (r *report) take(i int) int {
	if i >= len(r.fds) {
		return -1
	}
	fd := r.fds[i]
	r.fds[i] = -1
	return fd
}

var errEnded = errors.New("pid 1 has ended")

// receive waits for pid 1's next report.
func receive(ctl int) (report, error) {
	var data [reportSize]byte
	var control [64]byte
	n, nc, _, _, err := unix.Recvmsg(ctl, data[:], control[:], unix.MSG_CMSG_CLOEXEC)
	for errors.Is(err, unix.EINTR) {
		n, nc, _, _, err = unix.Recvmsg(ctl, data[:], control[:], unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil {
		return report{}, err
	}
	if n != reportSize {
		return report{}, errEnded
	}
	field := func(i int) int { return int(int32(binary.NativeEndian.Uint32(data[4*i:]))) }
	r := report{kind: field(0), pid: field(1), status: field(2), request: field(3)}
	if nc > 0 {
		r.fds = rightsOf(control[:nc])
	}
	return r, nil
}

func rightsOf(control []byte) []int {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) == 0 {
		return nil
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil
	}
	return fds
}

// sendRequest wakes pid 1 with a request that is in the image already.
func sendRequest(ctl, number int, rights []byte) syscall.Errno {
	var data [4]byte
	binary.NativeEndian.PutUint32(data[:], uint32(number))
	var errno syscall.Errno
	errors.As(unix.Sendmsg(ctl, data[:], rights, nil, unix.MSG_NOSIGNAL), &errno)
	return errno
}

func statusOf(ws syscall.WaitStatus) Status {
	if ws.Signaled() { //nolint:misspell // its name
		return Status{Signal: ws.Signal(), CoreDump: ws.CoreDump()}
	}
	return Status{Code: ws.ExitStatus()}
}
