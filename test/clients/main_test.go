package clients

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// apartEnv says that this process is in a network of its own.
const apartEnv = "SNAPFS_CLIENTS_APART"

// TestMain runs the tests in a network of their own, where they say which names
// there are. Only root can make one.
func TestMain(m *testing.M) {
	os.Exit(treetest.WithProgram(func() int { return apart(m.Run) }, func(context.Context, string) error { return nil }))
}

// apart runs the tests in a process with a network and mounts of its own.
func apart(tests func() int) int {
	var err error
	switch {
	case os.Getenv(apartEnv) == "" && os.Geteuid() == 0:
		var status int
		if status, err = again(); err == nil {
			return status
		}
	case os.Geteuid() == 0:
		err = lay()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return tests()
}

func again() (status int, err error) {
	runtime.LockOSThread() // the signal below is sent when the thread ends
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), apartEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// lay makes the network: every address of two ranges leads to servers of this
// process, and none is of an interface, so that they are other hosts' as far as
// a program can see. The names are those of the test's own server for names, and one of /etc/hosts.
func lay() error {
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"route", "add", "local", outside.String(), "dev", "lo"},
		{"route", "add", "local", private.String(), "dev", "lo"},
	} {
		_, ran := run.Output(context.Background(), "ip", args...)
		err = errors.Join(err, ran)
	}
	hosts, rerr := os.ReadFile("/etc/hosts")
	return errors.Join(err, rerr, cover("/etc/resolv.conf", []byte("nameserver 127.0.0.1\n")),
		cover("/etc/hosts", append(hosts, "\n203.0.113.30 pinned.test unknown.test\n"...)))
}

// cover mounts a file over another.
func cover(path string, content []byte) error {
	file := filepath.Join(treetest.Built(), filepath.Base(path))
	err := os.WriteFile(file, content, 0o644)
	real, found := filepath.EvalSymlinks(path)
	return errors.Join(err, found, os.NewSyscallError("mount", unix.Mount(file, real, "", unix.MS_BIND, "")))
}
