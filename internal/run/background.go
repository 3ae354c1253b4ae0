package run

import (
	"os"
	"os/exec"
	"syscall"
)

// Background starts the command line args in a session of its own, so that the program outlives this process
// and its terminal. It runs in the root directory; its standard streams are /dev/null, except stderr unless
// that is nil; each of extra becomes a descriptor from 3 on. The caller waits for it, or uses [Detached];
// after this process has ended, init reaps it.
func Background(args []string, stderr *os.File, extra ...*os.File) (*os.Process, error) {
	return BackgroundIn(nil, args, stderr, extra...)
}

// Detached starts a program as [Background] does, and waits for its end in the background: a process that
// lives long, such as a server, would otherwise have one more dead child for each program.
func Detached(args []string, stderr *os.File, extra ...*os.File) error {
	p, err := Background(args, stderr, extra...)
	if err != nil {
		return err
	}
	go func() { _, _ = p.Wait() }() // nobody asks how it ended
	return nil
}

// BackgroundIn starts a program in a session of its own as [Background] does, with the environment env; nil
// means the environment of this process.
func BackgroundIn(env, args []string, stderr *os.File, extra ...*os.File) (*os.Process, error) {
	c := exec.Command(args[0], args[1:]...)
	c.Env = env
	c.Dir = "/"
	c.ExtraFiles = extra
	if stderr != nil {
		c.Stderr = stderr
	}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return nil, err
	}
	return c.Process, nil
}
