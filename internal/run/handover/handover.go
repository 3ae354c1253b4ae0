// Package handover runs a program in place of this one: with the same streams, signals and exit status.
// Unlike package run it works on every system, for snapfs on Windows.
package handover

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// errMissing is the error of [Find] for a program that is not in PATH.
var errMissing = exec.ErrNotFound

// Find returns the path of the program name in PATH, or an error if it does not exist.
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", errors.Join(errMissing, err)
	}
	return path, nil
}

// Run runs the program at path to its end with this process's streams, and returns its exit status. env is
// added to this process's variables. A console sends ctrl-c to all of its programs, so this process ignores
// it and waits for the program's end. SIGTERM is passed on, where the system has it.
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
					_ = cmd.Process.Signal(sig) // the program may have ended
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

// Quietly runs the program at path to its end without input, discards its output, and returns its exit
// status. env is added to this process's variables.
func Quietly(path string, args, env []string) (status int, err error) {
	cmd := command(path, args, env)
	return statusOf(cmd, cmd.Run())
}

func command(path string, args, env []string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// statusOf returns the exit status of a program, or 1 if it was killed, as a shell of Windows
// reports it.
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
