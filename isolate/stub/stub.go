//go:build linux

package stub

import (
	"encoding/binary"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/isolate/launch"
)

// Socket is the path in a container of the socket (SOCK_SEQPACKET) that the stub connects to.
const Socket = "/run/snapfs/" + SocketName

// SocketName is the name of [Socket] in the supervisor's directory of the container.
const SocketName = "programs"

// Files is how many descriptors the stub's first message has: of its working directory (O_PATH), and of its standard
// input, output and error.
const Files = 4

// SignalSize is the size in bytes of each further message, which is one struct signalfd_siginfo (signalfd(2)).
const SignalSize = 128

// maxText is the longest text of a [Reply], in bytes.
const maxText = 8 << 10

// forwarded are the signals that the stub passes on. Of those that it does not, SIGKILL and SIGSTOP cannot be caught,
// and the others have their usual effect on the stub; the supervisor ends the real program when the stub ends.
var forwarded = [...]unix.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGCONT, unix.SIGTSTP, unix.SIGWINCH, unix.SIGALRM,
}

// Forwards reports whether the stub passes on a signal.
func Forwards(signal unix.Signal) bool { return slices.Contains(forwarded[:], signal) }

// The actions of a [Reply]. Their signs decide how the stub goes on.
const (
	actionExit = 1
	actionStop = 0
	actionKill = -1
)

// A Reply is an order of the supervisor to the stub.
type Reply struct {
	action, value int32
	text          string
}

// Exit returns the reply by which the stub writes text to its standard error and exits with this status.
func Exit(status int, text string) Reply { return Reply{actionExit, int32(status), text} }

// Killed returns the reply by which the stub ends itself by this signal, without a core file. If it cannot, because the
// signal does not end processes, it exits with 128 plus the signal's number.
func Killed(signal unix.Signal) Reply { return Reply{actionKill, int32(signal), ""} }

// Stop returns the reply by which the stub stops, as by SIGSTOP, until it gets SIGCONT.
func Stop() Reply { return Reply{actionStop, 0, ""} }

// Message returns the reply as a message for the stub's socket.
func (r Reply) Message() []byte {
	text := r.text[:min(len(r.text), maxText)]
	msg := binary.NativeEndian.AppendUint32(nil, uint32(r.action))
	msg = binary.NativeEndian.AppendUint32(msg, uint32(r.value))
	msg = binary.NativeEndian.AppendUint32(msg, uint32(128+r.value))
	msg = binary.NativeEndian.AppendUint32(msg, uint32(len(text)))
	return append(msg, text...)
}

// Program returns the stub as an executable file. All containers have the same.
var Program = sync.OnceValues(func() ([]byte, error) { return program(Socket) })

// program returns the stub that connects to the socket at path.
func program(path string) ([]byte, error) {
	s := &steps{launch.NewProgram(32 << 10)}
	return s.Program(s.all(path))
}

// steps are the system calls of the stub.
type steps struct{ *launch.Image }

// all adds the system calls of the stub that connects to the socket at path, and returns the first of them.
func (s *steps) all(path string) (first launch.Step) {
	s.end("snapfs: the supervisor of this sandbox does not answer\n")
	first = s.Jump()
	for range 3 { // a closed standard stream becomes /dev/null
		s.Do(unix.SYS_OPENAT, launch.Num(unix.AT_FDCWD), s.Str("/dev/null"), launch.Num(unix.O_RDWR)).IgnoreErrors()
	}
	var set uint64
	for _, signal := range forwarded {
		set |= 1 << (signal - 1)
	}
	mask := s.Words(set)
	s.Do(unix.SYS_RT_SIGPROCMASK, launch.Num(unix.SIG_SETMASK), mask, launch.Num(0), launch.Num(8))
	signals := s.Do(unix.SYS_SIGNALFD4, launch.Num(-1), mask, launch.Num(8), launch.Num(unix.SFD_CLOEXEC|unix.SFD_NONBLOCK)).Result()
	pid := s.Do(unix.SYS_GETPID).Result()
	socket := s.connect(path)
	s.hello(socket)
	s.serve(socket, signals, pid)
	return first
}

// end adds the system calls by which the stub writes text to its standard error and exits with the status 126, which
// shells have for a program that cannot be executed. From then on every error leads there.
func (s *steps) end(text string) {
	write := s.Do(unix.SYS_WRITE, launch.Num(2), s.Str(text), launch.Num(len(text))).IgnoreErrors()
	exit := s.Do(unix.SYS_EXIT_GROUP, launch.Num(126))
	exit.Next(exit).Zero(exit).Fail(exit)
	s.Last, s.OnErr = 0, write.At
}

// connect adds the system calls by which the stub connects to the supervisor's socket at path, and returns the cell of the
// connection.
func (s *steps) connect(path string) launch.Cell {
	address := append(binary.NativeEndian.AppendUint16(nil, unix.AF_UNIX), path+"\x00"...)
	socket := s.Do(unix.SYS_SOCKET, launch.Num(unix.AF_UNIX), launch.Num(unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC), launch.Num(0)).Result()
	s.Do(unix.SYS_CONNECT, s.Of(socket), s.Bytes(address...), launch.Num(len(address)))
	return socket
}

// hello adds the system calls by which the stub sends its working directory and its standard streams.
func (s *steps) hello(socket launch.Cell) {
	const size = 4 * Files
	control := s.Take(unix.CmsgSpace(size))
	s.Put64(control, uint64(unix.CmsgLen(size)))
	s.Put32(control+8, unix.SOL_SOCKET)
	s.Put32(control+12, unix.SCM_RIGHTS)
	fds := control + unix.CmsgLen(0)
	for i := range 3 {
		s.Put32(fds+4*(i+1), uint32(i))
	}
	s.Do(unix.SYS_OPENAT, launch.Num(unix.AT_FDCWD), s.Str("."), launch.Num(unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)).To(launch.Cell(fds))
	iov := s.Words(s.Addr(s.Take(1)), 1)
	message := s.Words(0, 0, iov.V, 1, s.Addr(control), uint64(unix.CmsgLen(size)), 0)
	s.Do(unix.SYS_SENDMSG, s.Of(socket), message, launch.Num(unix.MSG_NOSIGNAL))
}

// serve adds the loop in which the stub waits for signals, which it passes on, and for a reply.
func (s *steps) serve(socket, signals, pid launch.Cell) {
	const header = 16
	poll := s.Take(16)
	s.Put32(poll+4, unix.POLLIN)
	s.Put32(poll+12, unix.POLLIN)
	s.Do(launch.Load, s.Of(socket)).To(launch.Cell(poll))
	s.Do(launch.Load, s.Of(signals)).To(launch.Cell(poll + 8))
	wait := s.Do(unix.SYS_PPOLL, launch.Num(s.Addr(poll)), launch.Num(2), launch.Num(0), launch.Num(0), launch.Num(0)).IgnoreErrors()

	info := launch.Num(s.Addr(s.Take(SignalSize)))
	read := s.Do(unix.SYS_READ, s.Of(signals), info, launch.Num(SignalSize))
	s.Do(unix.SYS_SENDTO, s.Of(socket), info, launch.Num(SignalSize), launch.Num(unix.MSG_NOSIGNAL), launch.Num(0), launch.Num(0)).Next(read)

	reply := s.Take(header + maxText)
	field := func(i int) launch.Arg { return s.Of(launch.Cell(reply + 4*i)) }
	s.Last = 0
	failed := s.OnErr
	receive := s.Do(unix.SYS_RECVFROM, s.Of(socket), launch.Num(s.Addr(reply)), launch.Num(header+maxText), launch.Num(unix.MSG_DONTWAIT), launch.Num(0), launch.Num(0))
	read.Expect(receive).Zero(receive) // no further signal
	s.Do(unix.SYS_WRITE, launch.Num(2), launch.Num(s.Addr(reply+header)), field(3)).IgnoreErrors()
	act := s.Do(launch.Load, field(0))
	exit := s.Do(unix.SYS_EXIT_GROUP, field(1))
	exit.Next(exit).Zero(exit)

	s.Last = 0
	stop := s.Do(unix.SYS_KILL, s.Of(pid), launch.Num(unix.SIGSTOP))
	s.Jump().Next(wait)

	s.Last = 0
	kill := s.Do(unix.SYS_PRLIMIT64, launch.Num(0), launch.Num(unix.RLIMIT_CORE), s.Words(0, 0), launch.Num(0)).IgnoreErrors()
	s.Do(unix.SYS_RT_SIGACTION, field(1), s.Words(0, 0, 0, 0), launch.Num(0), launch.Num(8)).IgnoreErrors()
	s.Do(unix.SYS_RT_SIGPROCMASK, launch.Num(unix.SIG_SETMASK), s.Words(0), launch.Num(0), launch.Num(8))
	s.Do(unix.SYS_KILL, s.Of(pid), field(1))
	last := s.Do(unix.SYS_EXIT_GROUP, field(2))
	last.Next(last).Zero(last)

	act.Next(exit).Zero(stop).Expect(kill)
	s.Last = 0
	closed := s.Do(launch.Load, launch.Num(1)) // the supervisor has closed the connection
	s.Last = 0
	receive.Zero(closed).Expect(wait)
	closed.Next(launch.Step{At: failed})
}
