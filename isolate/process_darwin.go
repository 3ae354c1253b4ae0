package isolate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/probe"
	"github.com/snapfs/snapfs/isolate/launch"
)

// A Process is a program that [Prepared.Start] or [Container.Exec] started under a sandbox-exec profile. With
// it the caller waits for the program's end and sends signals to it.
type Process struct {
	pid    int
	done   chan struct{}
	status Status
}

// Exec runs a command under the container's sandbox-exec profile, in the copy of its working directory.
// Errors: as [Prepared.Start]; [errs.ErrClosed].
func (b *Container) Exec(ctx context.Context, c Command) (*Process, error) {
	if err := c.check(b.spec); err != nil {
		return nil, err
	}
	if c.TTY != nil {
		return nil, &errs.Error{Op: "opening a terminal", Kind: errs.ErrNotSupported, Err: errLinux}
	}
	if err := ctx.Err(); err != nil {
		return nil, &errs.Error{Op: "starting", Kind: errs.ErrInterrupted, Err: err}
	}
	program, err := find(c.Args[0], b.spec.place(c.Dir), c.Env)
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, launch.HostError("starting", err)
	}
	defer null.Close()
	streams := []*os.File{c.Stdin, c.Stdout, c.Stderr}
	for i, f := range streams {
		if f == nil {
			streams[i] = null
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, closed("starting")
	}
	args := append([]string{"sandbox-exec", "-p", b.profile, program}, c.Args[1:]...)
	proc, err := os.StartProcess(probe.SandboxExec, args, &os.ProcAttr{
		Dir: b.spec.place(c.Dir), Env: c.Env, Files: streams, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, launch.HostError("starting "+probe.SandboxExec, err)
	}
	p := &Process{pid: proc.Pid, done: make(chan struct{})}
	if len(b.procs) == 0 && isClosed(b.idle) {
		b.idle = make(chan struct{})
	}
	b.procs[p] = true
	go b.await(p, proc)
	return p, nil
}

// await waits for the command p to end, whose process is proc, and records its status.
func (c *Container) await(p *Process, proc *os.Process) {
	state, err := proc.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			p.status = Status{Signal: ws.Signal()}
		} else {
			p.status = Status{Code: state.ExitCode()}
		}
	}
	delete(c.procs, p)
	close(p.done)
	if len(c.procs) == 0 {
		close(c.idle)
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// find resolves a program name as execvp(3) would, because sandbox-exec does not report why it
// could not run one.
func find(name, dir string, env []string) (string, error) {
	places := []string{name}
	if !filepath.IsAbs(name) {
		places[0] = filepath.Join(dir, name)
	}
	if !strings.Contains(name, "/") {
		path := "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
		for _, e := range env {
			if v, ok := strings.CutPrefix(e, "PATH="); ok {
				path = v
			}
		}
		places = nil
		for dir := range strings.SplitSeq(path, ":") {
			places = append(places, strings.TrimSuffix(dir, "/")+"/"+name)
		}
	}
	why := &CommandError{Path: name, Errno: unix.ENOENT}
	for _, p := range places {
		err := unix.Access(p, unix.X_OK)
		if err == nil {
			return p, nil
		}
		if errno, ok := err.(syscall.Errno); ok && errno != unix.ENOENT && errno != unix.ENOTDIR {
			why.Errno = errno
		}
	}
	return "", why
}

// Wait waits for the process to end and returns its status; it may be called again. If ctx ends first, the
// error matches [errs.ErrInterrupted] and the process keeps running.
func (p *Process) Wait(ctx context.Context) (Status, error) {
	select {
	case <-p.done:
		return p.status, nil
	case <-ctx.Done():
		return Status{}, &errs.Error{Op: "waiting", Kind: errs.ErrInterrupted, Err: ctx.Err()}
	}
}

// Signal sends sig to the process, or does nothing if the process has ended.
func (p *Process) Signal(sig syscall.Signal) error {
	if isClosed(p.done) {
		return nil
	}
	if err := syscall.Kill(p.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return launch.HostError("sending a signal", err)
	}
	return nil
}

// SignalGroup sends sig to every process of the group that the process leads.
func (p *Process) SignalGroup(sig syscall.Signal) error {
	if isClosed(p.done) {
		return nil
	}
	if err := syscall.Kill(-p.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return launch.HostError("sending a signal", err)
	}
	return nil
}

// HostPID returns the process's id, which is that of its process group, or 0 once it has ended.
func (p *Process) HostPID() int {
	if isClosed(p.done) {
		return 0
	}
	return p.pid
}

// PTY returns nil: a command in a container has a terminal of its own only on Linux.
func (*Process) PTY() *os.File { return nil }

// Resize would set the size of the process's terminal. It does nothing, because terminals need Linux.
func (*Process) Resize(Size) error { return nil }

// Close would close the descriptors of the process. It does nothing on macOS, where a Process has none.
func (*Process) Close() error { return nil }
