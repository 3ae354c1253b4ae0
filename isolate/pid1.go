//go:build linux

package isolate

import (
	"golang.org/x/sys/unix"
)

// Reports of pid 1 to its supervisor, each a message on the control socket.
const (
	reportRoot    = 1 // the container's tree is complete; with descriptors of its root and its TUN device
	reportStarted = 2 // a request succeeded; with the process's descriptors
	reportRefused = 3 // a request failed
	reportExited  = 4 // a process ended
	reportIdle    = 5 // no process is left
	reportSocket  = 6 // a request succeeded; with a socket
)

// report is a message of pid 1: four int32, and descriptors.
type report struct {
	kind, pid, status, request int
	fds                        []int
}

const reportSize = 16

// pid1 is the part of an image that is the main loop of a container's pid 1: it reaps ended processes, reports
// to the supervisor, and executes the supervisor's requests.
type pid1 struct {
	ctl     int  // pid 1's end of the control socket
	pts     int  // descriptor of the root of the container's devpts
	umask   cell // the supervisor's umask, for commands
	request cell // number of the last request that pid 1 received
	wakes   cell // a signalfd for SIGCHLD
	loop    step // every request returns here
	enter   step // its next step is the first step of the request
	die     step
	inbox   int // offset of the msghdr that receives requests
	fds     [maxRequestFDs]cell
}

const maxRequestFDs = 3

// dying adds the steps that end pid 1 after an error.
func (b *builder) dying() {
	b.stage = "ending"
	exit := b.do(unix.SYS_EXIT_GROUP, num(1))
	exit.fail(exit)
	b.p1.die = exit
	b.last = 0
	b.onErr = exit.at
}

// newInbox reserves the memory that receives requests. The supervisor resets it before each request, because
// the kernel writes to it.
func (b *builder) newInbox() {
	data := b.newCell(0)
	b.p1.request = data
	iov := b.words(b.addr(int(data)), 4)
	control := b.take(unix.CmsgSpace(4 * maxRequestFDs))
	for i := range b.p1.fds {
		b.p1.fds[i] = cell(control + unix.CmsgLen(0) + 4*i)
	}
	b.p1.inbox = b.take(56)
	b.put64(b.p1.inbox+16, iov.v)
	b.put64(b.p1.inbox+24, 1)
	b.put64(b.p1.inbox+32, b.addr(control))
	b.resetInbox()
}

func (b *builder) resetInbox() {
	b.put64(b.p1.inbox+40, uint64(unix.CmsgSpace(4*maxRequestFDs)))
	for _, c := range b.p1.fds {
		b.put32(int(c), ^uint32(0))
	}
}

// message lays out a report with n descriptors. It returns the msghdr and the cells of the fields and
// descriptors.
func (im *image) message(kind, n int) (msg arg, pid, status, request cell, fds []cell) {
	data := im.take(reportSize)
	im.put32(data, uint32(kind))
	iov := im.words(im.addr(data), reportSize)
	var control, size uint64
	if n > 0 {
		at := im.take(unix.CmsgSpace(4 * n))
		im.put64(at, uint64(unix.CmsgLen(4*n)))
		im.put32(at+8, unix.SOL_SOCKET)
		im.put32(at+12, unix.SCM_RIGHTS)
		for i := range n {
			c := cell(at + unix.CmsgLen(0) + 4*i)
			im.put32(int(c), ^uint32(0))
			fds = append(fds, c)
		}
		control, size = im.addr(at), uint64(unix.CmsgLen(4*n))
	}
	msg = im.words(0, 0, iov.v, 1, control, size, 0)
	return msg, cell(data + 4), cell(data + 8), cell(data + 12), fds
}

// serve adds the main loop, to which the other steps return. Reports are sent in the order of events: a process
// is reported as started before it is reported as ended, and the container as idle after all of them.
func (b *builder) serve() {
	b.stage = "waiting"
	b.last = 0
	ctl := num(b.p1.ctl)
	poll := b.take(16)
	b.put32(poll, uint32(b.p1.ctl))
	b.put32(poll+4, unix.POLLIN)
	b.put32(poll+12, unix.POLLIN)
	b.p1.wakes = cell(poll + 8)

	exited, pid, status, _, _ := b.message(reportExited, 0)
	reap := b.do(unix.SYS_WAIT4, num(-1), b.at(status), num(unix.WNOHANG|unix.WALL), num(0)).to(pid)
	b.do(unix.SYS_SENDMSG, ctl, exited, num(unix.MSG_NOSIGNAL)).next(reap)

	idle, _, _, seen, _ := b.message(reportIdle, 0)
	none := b.do(look, b.of(b.p1.request)).to(seen)
	b.do(unix.SYS_SENDMSG, ctl, idle, num(unix.MSG_NOSIGNAL))
	sleep := b.do(unix.SYS_PPOLL, num(b.addr(poll)), num(2), num(0), num(0), num(0)).anyhow()
	reap.expect(none).zero(sleep)

	receive := b.do(unix.SYS_RECVMSG, ctl, num(b.addr(b.p1.inbox)), num(unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)).zero(b.p1.die)
	b.p1.enter = b.jump().next(reap)
	drain := b.do(unix.SYS_READ, b.of(b.p1.wakes), num(b.addr(b.take(128))), num(128))
	drain.next(reap).zero(reap).expect(reap)
	receive.expect(drain)
	b.p1.loop = reap
	b.last = 0
}

// watch adds the steps that wake pid 1 when a process ends.
func (b *builder) watch() {
	b.stage = "watching for ended processes"
	ended := b.words(1 << (unix.SIGCHLD - 1))
	b.do(unix.SYS_RT_SIGPROCMASK, num(unix.SIG_SETMASK), ended, num(0), num(8))
	b.do(unix.SYS_SIGNALFD4, num(-1), ended, num(8), num(unix.SFD_NONBLOCK|unix.SFD_CLOEXEC)).to(b.p1.wakes)
}
