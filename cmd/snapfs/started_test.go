package main

import (
	"bufio"
	"errors"
	"io"
	"os/exec"
	"syscall"
	"testing"
)

// A background is a command that runs while the test goes on.
type background struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Reader
}

// started starts snapfs and waits until its command has said "up".
func (b *desk) started(args ...string) *background {
	b.t.Helper()
	c := &background{t: b.t, cmd: b.command(args...)}
	pipe, err := c.cmd.StdoutPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	c.out = bufio.NewReader(pipe)
	if line, err := c.out.ReadString('\n'); err != nil || line != "up\n" {
		c.signal(syscall.SIGKILL)
		b.t.Fatalf("%q said %q, %v; then %v", args, line, err, c.cmd.Wait())
	}
	return c
}

func (c *background) signal(sig syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatal(err)
	}
}

// ended waits for the end; the status is -1 where a signal ended snapfs itself.
func (c *background) ended() (status int, rest string) {
	c.t.Helper()
	out, _ := io.ReadAll(c.out)
	err := c.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return c.cmd.ProcessState.ExitCode(), string(out)
}
