package run

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// polite is how long a group has to end after SIGTERM, before SIGKILL.
const polite = 2 * time.Second

// Group runs a program to its end as the leader of a process group of its own,
// so that all that it has started can be ended with it. started, which may be
// nil, is told the group's number before Group waits; where it answers with an
// error, the group is ended, and that is the error.
//
// When ctx ends, the group gets SIGTERM, two seconds later SIGKILL. Should this
// process be killed, the program gets SIGKILL, and what it started goes on: see
// [EndGroup]. With keep, what the program has left running when it ended well is
// left alone; otherwise it is ended. Streams must be files, or nil, which drops
// what is written: nothing else can be left to who is left running.
// Errors: *MissingError, *Error.
func Group(ctx context.Context, p Program, keep bool, started func(group int) error) error {
	path, err := Look(p.Name)
	if err != nil {
		return err
	}
	// The signal at the death of a parent comes at that of its thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, path, p.Args...)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.Env, p.Dir, p.Stdin, p.Stdout, p.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return signalGroup(cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = polite
	if err := cmd.Start(); err != nil {
		return failure(ctx, p.Name, p.Args, new(head), err)
	}
	group := cmd.Process.Pid
	if started != nil {
		err = started(group)
	}
	if err != nil {
		return errors.Join(err, signalGroup(group, syscall.SIGKILL), ignoreExit(cmd.Wait()))
	}
	err = cmd.Wait()
	if err != nil || !keep {
		err = errors.Join(err, endGroup(group, nil))
	}
	if err != nil {
		return failure(ctx, p.Name, p.Args, new(head), err)
	}
	return nil
}

func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

func signalGroup(group int, sig syscall.Signal) error {
	if err := syscall.Kill(-group, sig); err != nil && err != syscall.ESRCH {
		return err
	}
	return nil
}

// EndGroup ends what is left of a group that another process of this program
// started with mark, a "NAME=VALUE", in its environment: of a number that was
// given out again nothing is ended. Errors: those of kill(2).
func EndGroup(group int, mark string) error {
	return endGroup(group, func(pid int) bool {
		env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		return err == nil && strings.Contains("\x00"+string(env), "\x00"+mark+"\x00")
	})
}

// endGroup asks the processes of a group that are ours (nil: all) to end, and
// makes them.
func endGroup(group int, ours func(pid int) bool) error {
	for began, sig := time.Now(), syscall.SIGTERM; ; time.Sleep(5 * time.Millisecond) {
		left := members(group, ours)
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

// members lists the processes of a group that have not ended.
func members(group int, ours func(pid int) bool) (pids []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is a good one
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// The second field is a name in parentheses, which may hold anything
		// (proc(5)); state, parent and group follow.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 3 || fields[2] != strconv.Itoa(group) || fields[0] == "Z" || fields[0] == "X" {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && (ours == nil || ours(pid)) {
			pids = append(pids, pid)
		}
	}
	return pids
}
