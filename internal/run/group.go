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

// polite is how long the processes that [Group] started have to end after SIGTERM before they get SIGKILL.
const polite = 2 * time.Second

// Group runs a program to its end as the leader of a process group of its own, so that all its descendants
// can be ended with it.
//
// When ctx ends, the group gets SIGTERM, and two seconds later SIGKILL. If this process is killed, the
// program gets SIGKILL (on Linux), but its descendants continue: see [EndMarked]. Descendants that still run
// after the program has succeeded are ended, or left alone if keep is set. Streams must be files, or nil to
// discard output: descendants can use nothing else later.
//
// Errors: ErrMissing, *Error.
func Group(ctx context.Context, p Program, keep bool) error {
	path, err := Look(p.Name)
	if err != nil {
		return err
	}
	// The parent-death signal is sent when the parent's thread ends.
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

// EndMarked ends the programs that a process of this program started with [Group] and left behind when it was
// killed. It identifies them by marks, "NAME=VALUE", all of which are in their environment, because pids are
// reused. It does not find a descendant that has created a session of its own.
//
// Cost: reading /proc/*/stat, and the environment of each process that leads no process group. Errors: those
// of kill(2). Without /proc it finds none.
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

// end sends SIGTERM to the processes for which ours returns true (those of a program's group), and SIGKILL
// after two seconds (polite), until none is left. It returns an error if some still exist after another two
// seconds.
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
			return errors.New("a process that it started cannot be killed")
		}
		if !late {
			sig = 0 // SIGTERM was sent
		}
	}
}

// A member is a running process with the ids of its process group and its session, by which [Group] and
// [EndMarked] find the processes to end.
type member struct {
	pid            int
	group, session string
}
