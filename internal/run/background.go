package run

import (
	"os"
	"os/exec"
	"syscall"
)

// Background starts a program in a session of its own, so that it outlives
// this process and its terminal, with nothing for standard streams but stderr
// (nil: /dev/null), in the root directory. Each of extra becomes a descriptor from 3 on. It is
// nobody's to wait for: once this process has ended, init reaps it.
func Background(args []string, stderr *os.File, extra ...*os.File) (*os.Process, error) {
	c := exec.Command(args[0], args[1:]...)
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
