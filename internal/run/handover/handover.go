// Package handover runs a program in the place of this one: the same streams, the same
// signals, its exit status. Unlike package run it is for every system.
package handover

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// ErrMissing says that there is no such program.
var ErrMissing = exec.ErrNotFound

// Find is where a program is; an error matches [ErrMissing].
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", errors.Join(ErrMissing, err)
	}
	return path, nil
}

// Run runs a program to its end with this process's streams, and env beyond this
// process's variables, and answers with its status. What a console sends to all of its
// programs, as for ctrl-c, is the program's to answer; this one goes on until it ends.
// A request to end is passed on, where the system has one.
func Run(path string, args, env []string) (status int, err error) {
	cmd := command(path, args, env)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case sig := <-signals:
				if sig != os.Interrupt && runtime.GOOS != "windows" {
					_ = cmd.Process.Signal(sig) // it may have ended
				}
			case <-ended:
				return
			}
		}
	}()
	err = cmd.Wait()
	close(ended)
	return statusOf(cmd, err)
}

// Quietly runs a program to its end without input, drops what it writes, and answers
// with its status.
func Quietly(path string, args, env []string) (status int, err error) {
	cmd := command(path, args, env)
	return statusOf(cmd, cmd.Run())
}

func command(path string, args, env []string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// statusOf is how a program ended: 1 for one that was killed, as a shell of Windows has it.
func statusOf(cmd *exec.Cmd, err error) (int, error) {
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		return 0, err
	}
	return max(cmd.ProcessState.ExitCode(), 0) + killed(cmd), nil
}

func killed(cmd *exec.Cmd) int {
	if cmd.ProcessState.ExitCode() < 0 {
		return 1
	}
	return 0
}
