//go:build linux

package isolate

import (
	"encoding/binary"
	"errors"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate/launch"
	"github.com/snapfs/snapfs/isolate/mounts"
)

// awaitReady waits until pid 1 reports that the container is complete and serves requests. If pid 1 has ended
// before, it returns the reason.
func (c *Container) awaitReady() error {
	for {
		r, err := receive(c.ctl)
		if err != nil {
			return c.startError()
		}
		c.handle(r)
		if r.kind != reportRoot && r.kind != reportObserver {
			mounts.CloseInBackground(c.builder.CloseLater...)
			c.builder.CloseLater = nil
			return nil
		}
	}
}

// serve receives the reports of pid 1 (a command started, a process ended, all idle) and acts on
// them, until pid 1 has ended.
func (c *Container) serve() {
	for {
		r, err := receive(c.ctl)
		if err != nil {
			break
		}
		c.handle(r)
		runtime.Gosched() // let a goroutine run that the report woke, before receive blocks this processor of the runtime
	}
	c.end()
	close(c.done)
	runtime.Gosched() // let goroutines continue that wait for the end, before the memory is unmapped
	c.reqMu.Lock()    // another goroutine may still read the cause of a failed request
	defer c.reqMu.Unlock()
	c.builder.Free()
}

// end waits for the end of pid 1, which the kernel reaps after every other process of its namespace, and
// closes all descriptors of the container.
func (c *Container) end() {
	if c.pid > 0 {
		for {
			_, err := unix.Wait4(c.pid, nil, unix.WALL, nil)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
	c.observing.Wait() // no process is left that the kernel could report on
	launch.ReleaseThread(c.builder.thread)
	if tun := c.Tun(); tun != nil {
		mounts.CloseInBackground(tun) // in the background: the kernel waits until the interface is gone
	}
	mounts.CloseFiles(c.shown)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects.Close()
	for _, fd := range []*int{&c.ctl, &c.pidfd, &c.root} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
	mounts.CloseInBackground(c.builder.CloseLast...)
	for _, p := range c.procs {
		p.end(Status{Signal: syscall.SIGKILL})
	}
	if !c.isIdle {
		c.isIdle = true
		close(c.idle)
	}
}

// startError returns the reason why pid 1 ended before the container was complete: the error that it
// recorded, or that it was killed.
func (c *Container) startError() error {
	where, errno := c.builder.Failure()
	if errno == 0 {
		return &errs.Error{Op: "starting", Kind: errs.ErrInterrupted, Err: errors.New("pid 1 was killed")}
	}
	hints := edgeHints(where.Path, errno)
	if hints == nil {
		hints = hintsFor(errno)
	}
	return &errs.Error{Op: where.Stage, Path: where.Path, Kind: launch.KindOf(errno), Err: errno, Hints: hints}
}

// handle updates the container's state from the report r of pid 1, passes r to the request that waits for it,
// and closes its remaining descriptors.
func (c *Container) handle(r report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r.kind {
	case reportRoot:
		c.root = r.take(0)
		n := 1
		if c.builder.spec.Network == NetworkEdge {
			c.tun, n = r.take(n), n+1
		}
		for ; n < len(r.fds); n++ {
			c.objects = append(c.objects, r.take(n))
		}
	case reportObserver:
		c.observe(r.take(0))
	case reportStarted:
		if p := c.pending; p != nil {
			p.begin(r.take(0), r.take(1))
			c.procs[r.pid] = p
			c.ran = true
		}
		c.reports <- r
	case reportSocket:
		r.status = r.take(0)
		c.reports <- r
	case reportRefused:
		c.reports <- r
	case reportExited:
		if p := c.procs[r.pid]; p != nil {
			delete(c.procs, r.pid)
			p.end(statusOf(r.request, r.status))
		}
	case reportIdle:
		if c.ran && r.request == c.sent && !c.isIdle {
			c.isIdle = true
			close(c.idle)
		}
	}
	closeAll(r.fds)
}

// take returns the descriptor with the index i that pid 1 sent with the report r; -1 if there is none. The
// caller owns it then, so that [Container.handle] does not close it.
func (r *report) take(i int) int {
	if i >= len(r.fds) {
		return -1
	}
	fd := r.fds[i]
	r.fds[i] = -1
	return fd
}

var errEnded = errors.New("pid 1 has ended")

// receive waits for the next report of pid 1 on the control socket ctl. The caller closes the
// report's descriptors.
func receive(ctl int) (report, error) {
	var data [launch.ReportSize]byte
	var control [64]byte
	n, nc, _, _, err := unix.Recvmsg(ctl, data[:], control[:], unix.MSG_CMSG_CLOEXEC)
	for errors.Is(err, unix.EINTR) {
		n, nc, _, _, err = unix.Recvmsg(ctl, data[:], control[:], unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil {
		return report{}, err
	}
	if n != launch.ReportSize {
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

// sendRequest wakes pid 1, over its control socket ctl, to execute the request with this number, whose system
// calls are in the memory that both share already. rights is the control message with the descriptors to
// pass.
func sendRequest(ctl, number int, rights []byte) syscall.Errno {
	var data [4]byte
	binary.NativeEndian.PutUint32(data[:], uint32(number))
	var errno syscall.Errno
	errors.As(unix.Sendmsg(ctl, data[:], rights, nil, unix.MSG_NOSIGNAL), &errno)
	return errno
}

// statusOf returns the status of a process from the fields si_code and si_status of waitid(2).
func statusOf(code, status int) Status {
	const exited = 1 // CLD_EXITED
	if code == exited {
		return Status{Code: status}
	}
	return Status{Signal: syscall.Signal(status)}
}
