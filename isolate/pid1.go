//go:build linux

package isolate

import (
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/isolate/launch"
)

// The kinds of reports that pid 1 sends to its supervisor, each a message on the control socket.
const (
	reportRoot     = 1 // the container's tree is complete; with descriptors of its root and its TUN device
	reportStarted  = 2 // a request succeeded; with the process's descriptors
	reportRefused  = 3 // a request failed
	reportExited   = 4 // a process ended
	reportIdle     = 5 // no process is left
	reportSocket   = 6 // a request succeeded; with a socket
	reportObserver = 7 // system calls are observed; with the descriptor that notifies of them
)

// A report is a message of a container's pid 1 to the supervisor, such as that a process has ended: four
// int32, and descriptors. If a process has ended, status and request have the values of si_status and si_code, see
// waitid(2).
type report struct {
	kind, pid, status, request int
	fds                        []int
}

// A pid1 is the part of an image, a prepared list of system calls, that is the main loop of a container's pid
// 1: it reaps ended processes, reports to the supervisor, and executes the supervisor's requests.
type pid1 struct {
	ctl     int         // pid 1's end of the control socket
	pts     int         // descriptor of the root of the container's devpts
	umask   launch.Cell // the supervisor's umask, for commands
	request launch.Cell // number of the last request that pid 1 received
	wakes   launch.Cell // a signalfd for SIGCHLD
	loop    launch.Step // every request returns here
	enter   launch.Step // its next step is the first step of the request
	die     launch.Step
	inbox   int // offset of the msghdr that receives requests
	fds     [maxRequestFDs]launch.Cell
	domains domains
}

const maxRequestFDs = 4

// dying adds the system call by which pid 1 exits. Unless set otherwise, an error of any system call that is
// added after it leads there.
func (b *builder) dying() {
	b.Stage = "ending"
	exit := b.Do(unix.SYS_EXIT_GROUP, launch.Num(1))
	exit.Fail(exit)
	b.p1.die = exit
	b.Last = 0
	b.OnErr = exit.At
}

// newInbox reserves the memory, in the image that pid 1 shares with the supervisor, into which pid 1 receives
// the supervisor's requests. The supervisor resets it before each request, because the kernel writes to it.
func (b *builder) newInbox() {
	data := b.NewCell(0)
	b.p1.request = data
	iov := b.Words(b.Addr(int(data)), 4)
	control := b.Take(unix.CmsgSpace(4 * maxRequestFDs))
	for i := range b.p1.fds {
		b.p1.fds[i] = launch.Cell(control + unix.CmsgLen(0) + 4*i)
	}
	b.p1.inbox = b.Take(56)
	b.Put64(b.p1.inbox+16, iov.V)
	b.Put64(b.p1.inbox+24, 1)
	b.Put64(b.p1.inbox+32, b.Addr(control))
	b.resetInbox()
}

func (b *builder) resetInbox() {
	b.Put64(b.p1.inbox+40, uint64(unix.CmsgSpace(4*maxRequestFDs)))
	for _, c := range b.p1.fds {
		b.Put32(int(c), ^uint32(0))
	}
}

// serve adds the main loop of pid 1, to which all requests return. Reports are sent in the order of events: a
// process is reported as started before it is reported as ended, and the container as idle after all of them.
func (b *builder) serve() {
	b.Stage = "waiting"
	b.Last = 0
	ctl := launch.Num(b.p1.ctl)
	poll := b.Take(16)
	b.Put32(poll, uint32(b.p1.ctl))
	b.Put32(poll+4, unix.POLLIN)
	b.Put32(poll+12, unix.POLLIN)
	b.p1.wakes = launch.Cell(poll + 8)

	// pid 1 reports an ended process before it reaps it, because reaping takes longer than the report.
	exited, pid, status, code, _ := b.Message(reportExited, 0)
	info := b.Take(128) // a siginfo_t: fields at 8, 16 and 24 are the code, the process and its status
	look := b.Do(unix.SYS_WAITID, launch.Num(unix.P_ALL), launch.Num(0), launch.Num(b.Addr(info)),
		launch.Num(unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL), launch.Num(0))
	found := b.Do(launch.Load, b.Of(launch.Cell(info+16))).To(pid) // 0 if no process has ended
	b.Do(launch.Load, b.Of(launch.Cell(info+24))).To(status)
	b.Do(launch.Load, b.Of(launch.Cell(info+8))).To(code)
	b.Do(unix.SYS_SENDMSG, ctl, exited, launch.Num(unix.MSG_NOSIGNAL))
	reap := b.Do(unix.SYS_WAIT4, b.Of(pid), launch.Num(0), launch.Num(unix.WNOHANG|unix.WALL), launch.Num(0)).Next(look)

	idle, _, _, seen, _ := b.Message(reportIdle, 0)
	none := b.Do(launch.Load, b.Of(b.p1.request)).To(seen)
	b.Do(unix.SYS_SENDMSG, ctl, idle, launch.Num(unix.MSG_NOSIGNAL))
	sleep := b.Do(unix.SYS_PPOLL, launch.Num(b.Addr(poll)), launch.Num(2), launch.Num(0), launch.Num(0), launch.Num(0)).IgnoreErrors()
	look.Expect(none)
	found.Zero(sleep)
	reap.Zero(sleep)

	receive := b.Do(unix.SYS_RECVMSG, ctl, launch.Num(b.Addr(b.p1.inbox)), launch.Num(unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)).Zero(b.p1.die)
	b.p1.enter = b.Jump().Next(look)
	drain := b.Do(unix.SYS_READ, b.Of(b.p1.wakes), launch.Num(b.Addr(b.Take(128))), launch.Num(128))
	drain.Next(look).Zero(look).Expect(look)
	receive.Expect(drain)
	b.p1.loop = look
	b.Last = 0
}

// watch adds the system calls by which pid 1 opens a signalfd(2) that wakes it when a process ends, so that
// it can report the end to the supervisor.
func (b *builder) watch() {
	b.Stage = "watching for ended processes"
	ended := b.Words(1 << (unix.SIGCHLD - 1))
	b.Do(unix.SYS_RT_SIGPROCMASK, launch.Num(unix.SIG_SETMASK), ended, launch.Num(0), launch.Num(8))
	b.Do(unix.SYS_SIGNALFD4, launch.Num(-1), ended, launch.Num(8), launch.Num(unix.SFD_NONBLOCK|unix.SFD_CLOEXEC)).To(b.p1.wakes)
}
