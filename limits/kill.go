//go:build linux

package limits

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/poll"
)

// kill kills every process in the container, through its control groups or, without them, through pid 1. The
// caller holds the mutex life.
func (g *Group) kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	if len(g.members) == 0 {
		return g.killWithout(ctx)
	}
	return killGroups(ctx, g.members)
}

// killWithout kills every process of a container that has no control group: through Options.KillAll or,
// without that, by killing its pid 1.
func (g *Group) killWithout(ctx context.Context) error {
	switch {
	case g.o.KillAll != nil:
		if err := g.o.KillAll(ctx); err != nil {
			return &errs.Error{Op: "killing the sandbox", Kind: errs.ErrBusy, Err: err}
		}
		return nil
	case g.pidfd < 0:
		return nil // no process has started
	}
	// Before pid 1 has ended, the kernel kills the rest of the pid namespace and waits for it
	// (pid_namespaces(7)).
	if err := unix.PidfdSendSignal(g.pidfd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return failed("killing the sandbox", "", err)
	}
	return until(ctx, func() (bool, error) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(g.pidfd), Events: unix.POLLIN}}, 0)
		return n > 0, quiet(err)
	})
}

// killGroups kills all processes in members, the control groups of one container, repeatedly until none is
// left.
func killGroups(ctx context.Context, members []*member) error {
	return until(ctx, func() (bool, error) {
		if empty(members) {
			return true, nil
		}
		if killAtOnce(members) {
			return false, thaw(members)
		}
		return false, killOneByOne(members)
	})
}

// killAtOnce kills all processes of these control groups through the file cgroup.kill, and reports whether
// that exists: version 2, Linux 5.14.
func killAtOnce(members []*member) bool {
	for _, m := range members {
		if m.version == 2 && m.write("cgroup.kill", "1") == nil {
			return true
		}
	}
	return false
}

// killOneByOne freezes these control groups, so that no process forks, kills each process, and thaws the
// groups.
func killOneByOne(members []*member) error {
	for _, m := range members {
		switch {
		case m.has("freezer"):
			_ = m.write("freezer.state", "FROZEN") // a failure only makes the kill less reliable
		case m.version == 2:
			_ = m.write("cgroup.freeze", "1") // likewise
		}
	}
	for _, m := range members {
		if err := m.killEach(); err != nil {
			return errors.Join(err, thaw(members))
		}
	}
	return thaw(members)
}

// thaw lets the processes of these control groups continue, since frozen processes of cgroup version 1
// receive no signal.
func thaw(members []*member) error {
	for _, m := range members {
		file, value := "freezer.state", "THAWED"
		switch {
		case m.version == 2:
			file, value = "cgroup.freeze", "0"
		case !m.has("freezer"):
			continue
		}
		if err := m.write(file, value); err != nil && !errors.Is(err, os.ErrNotExist) {
			return failed("killing the sandbox", m.path+"/"+file, err)
		}
	}
	return nil
}

func empty(members []*member) bool {
	for _, m := range members {
		procs, err := m.procs()
		removed := errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV)
		if err != nil && !removed || len(procs) > 0 {
			return false
		}
	}
	return true
}

// killEach sends SIGKILL to each process in the control group m. It is the way for kernels without the file
// cgroup.kill, which kills all at once.
func (m *member) killEach() error {
	procs, err := m.procs()
	if err != nil {
		return failed("killing the sandbox", m.path, err)
	}
	for _, pid := range procs {
		if err := killMember(pid, filepath.Base(m.path)); err != nil {
			return err
		}
	}
	return nil
}

// killMember kills the process pid if it is still in the control group called name. The check is needed
// because the kernel may have given the pid to a new process since it was listed.
func killMember(pid int, name string) error {
	if pid <= 0 {
		return &errs.Error{Op: "killing the sandbox", Kind: errs.ErrDenied, Err: errors.New("it contains a process of an outer pid namespace")}
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil // the process has ended
	}
	defer unix.Close(fd)
	groups, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil || !strings.Contains(string(groups), "/"+name+"\n") {
		return nil // the process has ended
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return failed("killing process "+strconv.Itoa(pid), "", err)
	}
	return nil
}

func quiet(err error) error {
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	return err
}

// until calls ask repeatedly until it returns true or an error, or ctx ends. With it a kill waits for
// processes to end: it returns ErrBusy if ctx's deadline passes, and ErrInterrupted if ctx is cancelled.
func until(ctx context.Context, ask func() (bool, error)) error {
	err := poll.Until(ctx, 100*time.Microsecond, 20*time.Millisecond, ask)
	switch {
	case err == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return &errs.Error{Op: "killing the sandbox", Kind: errs.ErrBusy, Err: errors.New("processes do not end")}
	}
	return &errs.Error{Op: "killing the sandbox", Kind: errs.ErrInterrupted, Err: err}
}
