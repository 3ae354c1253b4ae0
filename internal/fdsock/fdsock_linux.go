package fdsock

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/snapfs/snapfs/internal/proc"
	"golang.org/x/sys/unix"
)

// Conn is a connection between two processes of this machine that preserves message boundaries and carries
// file descriptors (unix(7), SOCK_SEQPACKET). Its methods block their thread; Shutdown wakes them. macOS has
// no such sockets, so there every function fails.
type Conn struct{ fd int }

// MaxMessage is the largest size of a message, in bytes; Send returns EMSGSIZE for a larger one. It holds a
// command's arguments and environment, and fits in the kernel's default send buffer.
const MaxMessage = 160 << 10

// maxFDs is the largest number of file descriptors that a message may carry. A receiver has space for no
// more, so the kernel would drop the others.
const maxFDs = 8

// Listen makes a listening socket at path, which must not exist. path may have any length:
// Listen binds through its directory's descriptor, because a socket address holds only 108
// bytes.
func Listen(path string) (*Conn, error) {
	return socket(path, func(fd int, sa unix.Sockaddr) error {
		if err := unix.Bind(fd, sa); err != nil {
			return err
		}
		return unix.Listen(fd, 64)
	})
}

// Dial connects to the listening socket at path without waiting. ECONNREFUSED: the listener is
// gone; ENOENT: no such path; EAGAIN: its backlog is full.
func Dial(path string) (*Conn, error) {
	return socket(path, func(fd int, sa unix.Sockaddr) error {
		if err := unix.SetNonblock(fd, true); err != nil {
			return err
		}
		return errors.Join(unix.Connect(fd, sa), unix.SetNonblock(fd, false))
	})
}

func socket(path string, do func(fd int, sa unix.Sockaddr) error) (*Conn, error) {
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	sa := &unix.SockaddrUnix{Name: "/proc/self/fd/" + strconv.Itoa(dir) + "/" + filepath.Base(path)}
	if err := do(fd, sa); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &Conn{fd}, nil
}

// Pair returns two connected ends, both for the caller to close; the second is for a child process, which opens
// it with [FromFD].
func Pair() (*Conn, *os.File, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return FromFD(ends[0]), os.NewFile(uintptr(ends[1]), "socket"), nil
}

// FromFD returns the connection for the descriptor of a connected unix socket that this process inherited
// from its parent. Close closes the descriptor.
func FromFD(fd int) *Conn { return &Conn{fd: fd} }

// Accept waits for the next connection to a listening socket and returns it; the caller closes it. EINVAL:
// Shutdown was called.
func (p *Conn) Accept() (*Conn, error) {
	for {
		fd, _, err := unix.Accept4(p.fd, unix.SOCK_CLOEXEC)
		if err == nil {
			return &Conn{fd}, nil
		}
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ECONNABORTED) {
			return nil, err
		}
	}
}

// PeerIDs returns the process at the other end, and the user and group ids that it had when the connection was made.
func (p *Conn) PeerIDs() (pid int, uid, gid uint32, err error) {
	cred, err := unix.GetsockoptUcred(p.fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, 0, 0, err
	}
	return int(cred.Pid), cred.Uid, cred.Gid, nil
}

// PeerUID returns the user id that the process at the other end had when the connection was made.
func (p *Conn) PeerUID() (uint32, error) {
	_, uid, _, err := p.PeerIDs()
	return uid, err
}

// Peer returns the process that listened at the other end when this end connected, as the kernel noted it
// (SO_PEERCRED).
func (p *Conn) Peer() (proc.Process, error) {
	cred, err := unix.GetsockoptUcred(p.fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return proc.Process{}, err
	}
	return proc.Identify(int(cred.Pid))
}

// PeerEnding reports whether the process at the other end is exiting: the kernel has freed its
// memory and is closing its descriptors (do_exit in kernel/exit.c).
func (p *Conn) PeerEnding() bool {
	cred, err := unix.GetsockoptUcred(p.fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil || cred.Pid == 0 { // in another pid namespace
		return false
	}
	args, err := os.ReadFile("/proc/" + strconv.Itoa(int(cred.Pid)) + "/cmdline")
	return err != nil || len(args) == 0
}

// Await waits up to most until a message arrives or the other end closes. It returns true if Receive would
// then return without waiting. A signal may end the wait early.
func (p *Conn) Await(most time.Duration) (bool, error) {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, int(most.Milliseconds()))
	if errors.Is(err, unix.EINTR) {
		err = nil
	}
	return n > 0, err
}

// HungUp reports whether the process at the other end has closed the connection. Messages that it sent before
// may still be unread.
func (p *Conn) HungUp() bool {
	fds := []unix.PollFd{{Fd: int32(p.fd)}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&unix.POLLHUP != 0
}

// Send sends one message with file descriptors; the caller still owns files and closes them. EMSGSIZE: msg is
// larger than MaxMessage.
func (p *Conn) Send(msg []byte, files ...*os.File) error {
	if len(msg) > MaxMessage {
		return unix.EMSGSIZE
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	return p.send(msg, rights, 0)
}

// TrySend sends a message only if the socket's buffer has room; otherwise it returns EAGAIN.
// Other errors are those of Send.
func (p *Conn) TrySend(msg []byte) error { return p.send(msg, nil, unix.MSG_DONTWAIT) }

func (p *Conn) send(msg, rights []byte, flags int) error {
	for {
		err := unix.Sendmsg(p.fd, msg, rights, nil, unix.MSG_NOSIGNAL|flags)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// buffers holds memory for messages. Most messages are small, and a process that received each in new memory of the
// largest size would collect garbage all the time.
var buffers = sync.Pool{New: func() any { return new([MaxMessage]byte) }}

// Receive waits for a message and returns it with its descriptors, which the caller then owns.
// io.EOF: the other end has closed.
func (p *Conn) Receive() ([]byte, []*os.File, error) {
	buf, _ := buffers.Get().(*[MaxMessage]byte)
	defer buffers.Put(buf)
	oob := make([]byte, unix.CmsgSpace(maxFDs*4))
	var n, oobn, flags int
	var err error
	for {
		n, oobn, flags, _, err = unix.Recvmsg(p.fd, buf[:], oob, unix.MSG_CMSG_CLOEXEC)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, nil, err
	}
	files, err := receivedFiles(oob[:oobn])
	switch {
	case err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = unix.EMSGSIZE
	case err == nil && n == 0:
		err = io.EOF
	}
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		return nil, nil, err
	}
	return bytes.Clone(buf[:n]), files, nil
}

func receivedFiles(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // not descriptors
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

// Shutdown ends both directions of the connection and wakes every waiting call, at both ends.
func (p *Conn) Shutdown() error { return unix.Shutdown(p.fd, unix.SHUT_RDWR) }

// ShutdownRead ends the receiving direction: it wakes every waiting Receive of this end and makes later sends
// of the other end fail. Messages to the other end still arrive.
func (p *Conn) ShutdownRead() error {
	return os.NewSyscallError("shutdown", unix.Shutdown(p.fd, unix.SHUT_RD))
}

// ShutdownWrite ends the sending direction of the connection: the other end reads io.EOF. Messages of the
// other end still arrive.
func (p *Conn) ShutdownWrite() error { return unix.Shutdown(p.fd, unix.SHUT_WR) }

// Close closes this end of the connection. No other call on it may be waiting.
func (p *Conn) Close() error { return unix.Close(p.fd) }
