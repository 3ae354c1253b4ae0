package run

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// polite is how long a group has to end after SIGTERM, before SIGKILL.
const polite = 2 * time.Second

// Group runs a program to its end as the leader of a process group of its own,
// so that all that it has started can be ended with it.
//
// When ctx ends, the group gets SIGTERM, two seconds later SIGKILL. Should this
// process be killed, the program gets SIGKILL (on Linux), and what it started goes on:
// see [EndMarked]. With keep, what the program has left running when it ended well is
// left alone; otherwise it is ended. Streams must be files, or nil, which drops
// what is written: nothing else can be left to who is left running.
// Errors: *MissingError, *Error.
func Group(ctx context.Context, p Program, keep bool) error {
	path, err := Look(p.Name)
	if err != nil {
		return err
	}
	// The signal at the death of a parent comes at that of its thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, path, p.Args...)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.Env, p.Dir, p.Stdin, p.Stdout, p.Stderr
	cmd.SysProcAttr = leader()
	cmd.Cancel = func() error { return signalGroup(cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = polite
	if err := cmd.Start(); err != nil {
		return failure(ctx, p.Name, p.Args, new(head), err)
	}
	err = cmd.Wait()
	if err != nil || !keep {
		group := strconv.Itoa(cmd.Process.Pid)
		err = errors.Join(err, end(func(p member) bool { return p.group == group }))
	}
	if err != nil {
		return failure(ctx, p.Name, p.Args, new(head), err)
	}
	return nil
}

func signalGroup(group int, sig syscall.Signal) error {
	if err := syscall.Kill(-group, sig); err != nil && err != syscall.ESRCH {
		return err
	}
	return nil
}

// EndMarked ends what another process of this program has started with [Group] and
// left when it was killed. It is known by marks, each a "NAME=VALUE" that was in the
// environment it got, all of them: numbers of processes are given out again. What
// has made a session of its own since is no part of a group, and goes on.
// Cost: reading /proc/*/stat, and the environment of each process that is in a group
// of somebody's session. Errors: those of kill(2). Without /proc none is found.
func EndMarked(marks ...string) error {
	return end(func(p member) bool {
		if p.group == p.session {
			return false
		}
		env, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/environ")
		return err == nil && !slices.ContainsFunc(marks, func(mark string) bool {
			return !strings.Contains("\x00"+string(env), "\x00"+mark+"\x00")
		})
	})
}

// end asks the processes that are ours to end, and makes them.
func end(ours func(member) bool) error {
	for began, sig := time.Now(), syscall.SIGTERM; ; time.Sleep(5 * time.Millisecond) {
		left := members(ours)
		if len(left) == 0 {
			return nil
		}
		late := time.Since(began) > polite
		if late {
			sig = syscall.SIGKILL
		}
		for _, pid := range left {
			if err := syscall.Kill(pid, sig); err != nil && err != syscall.ESRCH {
				return err
			}
		}
		if time.Since(began) > 2*polite {
			return errors.New("something that it started cannot be ended")
		}
		if !late {
			sig = 0 // it has been asked
		}
	}
}

// A member is a process of a group, which is part of a session.
type member struct {
	pid            int
	group, session string
}
