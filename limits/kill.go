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
)

// kill ends every process in the box. The caller holds life.
func (g *Group) kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if len(g.members) == 0 {
		return g.killWithout(ctx)
	}
	return killGroups(ctx, g.members)
}

// killWithout ends a box that has no control group.
func (g *Group) killWithout(ctx context.Context) error {
	switch {
	case g.o.KillAll != nil:
		if err := g.o.KillAll(ctx); err != nil {
			return &Error{Op: "killing the sandbox", Kind: ErrBusy, Err: err}
		}
		return nil
	case g.pidfd < 0:
		return nil // nothing has started
	}
	// The kernel kills the rest of the pid namespace, and waits for it, before
	// pid 1 has ended (pid_namespaces(7)).
	if err := unix.PidfdSendSignal(g.pidfd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return failed("killing the sandbox", "", err)
	}
	return until(ctx, func() (bool, error) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(g.pidfd), Events: unix.POLLIN}}, 0)
		return n > 0, quiet(err)
	})
}

// killGroups kills all that is in control groups of one mark, again and again
// until nothing is left.
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

// killAtOnce has the kernel kill all: Linux 5.14, in version 2.
func killAtOnce(members []*member) bool {
	for _, m := range members {
		if m.version == 2 && m.write("cgroup.kill", "1") == nil {
			return true
		}
	}
	return false
}

// killOneByOne kills while all stand still: what is frozen does not fork.
func killOneByOne(members []*member) error {
	for _, m := range members {
		switch {
		case m.has("freezer"):
			_ = m.write("freezer.state", "FROZEN") // killed all the same
		case m.version == 2:
			_ = m.write("cgroup.freeze", "1") // killed all the same
		}
	}
	for _, m := range members {
		if err := m.killEach(); err != nil {
			return errors.Join(err, thaw(members))
		}
	}
	return thaw(members)
}

// thaw lets what is frozen go: in version 1 it takes no signal before.
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

// killEach signals the processes of the group one by one.
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

// killMember kills a process if it still is in the group of that name: its number
// may have been given out again.
func killMember(pid int, name string) error {
	if pid <= 0 {
		return &Error{Op: "killing the sandbox", Kind: ErrDenied, Err: errors.New("a process of an outer pid namespace is in it")}
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil // it has ended
	}
	defer unix.Close(fd)
	groups, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil || !strings.Contains(string(groups), "/"+name+"\n") {
		return nil // it has ended
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return failed("killing process "+strconv.Itoa(pid), "", err)
	}
	return nil
}

// until asks until the answer is yes, at first often.
func until(ctx context.Context, ask func() (bool, error)) error {
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		if done, err := ask(); done || err != nil {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return &Error{Op: "killing the sandbox", Kind: ErrBusy, Err: errors.New("processes do not end")}
			}
			return &Error{Op: "killing the sandbox", Kind: ErrInterrupted, Err: ctx.Err()}
		}
	}
}

func quiet(err error) error {
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	return err
}
