//go:build linux

package isolate

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate/internal/stopped"
	"github.com/snapfs/snapfs/isolate/launch"
)

// A Process is a program that [Prepared.Start] or [Container.Exec] started in a container. With it the caller
// waits for the program's end and sends signals to it.
type Process struct {
	done      chan struct{}
	continues *stopped.Continues // of its container

	mu     sync.Mutex
	pidfd  int
	pty    *os.File
	status Status
}

func newProcess(k *stopped.Continues) *Process {
	return &Process{done: make(chan struct{}), continues: k, pidfd: -1}
}

// begin records that the process has started; pidfd and pty are its descriptors, or -1. The method end
// records that it has ended. Container.serve calls each once, in this order, when pid 1 reports the event.
func (p *Process) begin(pidfd, pty int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pidfd = pidfd
	if pty >= 0 {
		unix.SetNonblock(pty, true) //nolint:errcheck // otherwise reads block a thread
		p.pty = os.NewFile(uintptr(pty), "terminal")
	}
}

func (p *Process) end(st Status) {
	p.mu.Lock()
	p.status = st
	p.closePidfd()
	p.mu.Unlock()
	close(p.done)
}

func (p *Process) closePidfd() {
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
		p.pidfd = -1
	}
}

// Wait waits for the process to end and returns its status; it may be called again. If ctx ends first, the
// error matches [errs.ErrInterrupted] and the process keeps running. A process that was killed with its container
// has the signal SIGKILL.
func (p *Process) Wait(ctx context.Context) (Status, error) {
	select {
	case <-p.done:
	default:
		select {
		case <-p.done:
		case <-ctx.Done():
			return Status{}, &errs.Error{Op: "waiting", Kind: errs.ErrInterrupted, Err: ctx.Err()}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status, nil
}

// Signal sends sig to the process, or does nothing if the process has ended. While the container is frozen by signals
// (see [Container.Freeze]), a SIGCONT is sent at the thaw. Errors: [errs.ErrDenied], [errs.ErrInvalid].
func (p *Process) Signal(sig syscall.Signal) error {
	return p.continues.Send(sig, receiver{p, false})
}

// signal sends sig to the process at once.
func (p *Process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pidfd < 0 {
		return nil
	}
	err := unix.PidfdSendSignal(p.pidfd, sig, nil, 0)
	switch {
	case err == nil, errors.Is(err, unix.ESRCH):
		return nil
	case errors.Is(err, unix.EINVAL):
		return &errs.Error{Op: "sending a signal", Kind: errs.ErrInvalid, Err: err}
	}
	return launch.HostError("sending a signal", err)
}

// SignalGroup sends sig to every process of the group that the process leads, or does nothing if
// the process has ended. A SIGCONT is sent when one of Signal is. Errors: those of Signal.
func (p *Process) SignalGroup(sig syscall.Signal) error {
	return p.continues.Send(sig, receiver{p, true})
}

// signalGroup sends sig to the group at once.
func (p *Process) signalGroup(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	pid, err := p.hostPID()
	if pid == 0 || err != nil { // it has ended
		return err
	}
	if err := unix.Kill(-pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return launch.HostError("sending a signal", err)
	}
	return nil
}

// HostPID returns the process's id on the host, which is that of its process group, or 0 once it has ended.
func (p *Process) HostPID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	pid, _ := p.hostPID()
	return pid
}

// hostPID returns the process's id on the host, or 0 once it has ended. The caller holds mu.
func (p *Process) hostPID() (int, error) {
	if p.pidfd < 0 {
		return 0, nil
	}
	info, err := vfs.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(p.pidfd))
	if err != nil {
		return 0, launch.HostError("sending a signal", err)
	}
	_, rest, _ := strings.Cut(string(info), "\nPid:\t")
	line, _, _ := strings.Cut(rest, "\n")
	if pid, err := strconv.Atoi(line); err == nil && pid > 1 {
		return pid, nil
	}
	return 0, nil
}

// PTY returns the supervisor's end of the process's terminal, or nil if it has none. Reading it fails with
// EIO once no process in the container has the terminal open. [Process.Close] closes it.
func (p *Process) PTY() *os.File { return p.pty }

// Resize sets the size of the process's terminal; the foreground processes get SIGWINCH.
// Without a terminal it does nothing.
func (p *Process) Resize(size Size) error {
	if p.pty == nil {
		return nil
	}
	return SetSize(p.pty, size)
}

// Close closes the descriptors of the process. It neither ends the process nor waits for it.
// It may be called twice.
func (p *Process) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closePidfd()
	if p.pty != nil {
		p.pty.Close()
	}
	return nil
}
