//go:build linux

package stub

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/fdsock"
)

// server has a stub that runs, and the supervisor's end of its connection.
type server struct {
	conn    *fdsock.Conn
	command *exec.Cmd
	errors  *strings.Builder
}

// run starts a stub and receives its first message.
func run(t *testing.T) *server {
	t.Helper()
	dir := t.TempDir()
	short, err := os.MkdirTemp("/tmp", "stub") // an address holds 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(short, "socket")
	listen, err := fdsock.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(listen.Close(), os.RemoveAll(short)) })
	text, err := program(path)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "tool"), text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &server{command: exec.Command(filepath.Join(dir, "tool"), "argument"), errors: &strings.Builder{}}
	s.command.Dir, s.command.Stderr = dir, s.errors
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	if s.conn, err = listen.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.conn.Close() })
	_, files, err := s.conn.Receive()
	if err != nil || len(files) != Files {
		t.Fatalf("%d descriptors: %v", len(files), err)
	}
	defer fdsock.CloseAll(files)
	if at, err := os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(int(files[0].Fd())))); err != nil || at != dir {
		t.Errorf("its directory is %s: %v", at, err)
	}
	return s
}

// The stub ends as the supervisor replies.
func TestTheStubEndsAsTheReplySays(t *testing.T) {
	for _, c := range []struct {
		reply Reply
		code  int
		text  string
		kill  syscall.Signal
	}{
		{Exit(0, ""), 0, "", 0},
		{Exit(126, "no\n"), 126, "no\n", 0},
		{Exit(255, strings.Repeat("x", maxText)), 255, strings.Repeat("x", maxText), 0},
		{Killed(unix.SIGTERM), -1, "", unix.SIGTERM},
		{Killed(unix.SIGSEGV), -1, "", unix.SIGSEGV},
		{Killed(unix.SIGKILL), -1, "", unix.SIGKILL},
		{Killed(unix.SIGCHLD), 128 + int(unix.SIGCHLD), "", 0},
	} {
		s := run(t)
		if err := s.conn.Send(c.reply.Message()); err != nil {
			t.Fatal(err)
		}
		_ = s.command.Wait() // its state says more
		status, _ := s.command.ProcessState.Sys().(syscall.WaitStatus)
		if s.command.ProcessState.ExitCode() != c.code || s.errors.String() != c.text || c.kill != 0 && status.Signal() != c.kill || status.CoreDump() {
			t.Errorf("%+v: %v, %d bytes of text", c.reply, s.command.ProcessState, s.errors.Len())
		}
	}
}

// A stub whose supervisor has gone ends with an error.
func TestAStubWithoutASupervisorEnds(t *testing.T) {
	s := run(t)
	if err := s.conn.Shutdown(); err != nil {
		t.Fatal(err)
	}
	if _ = s.command.Wait(); s.command.ProcessState.ExitCode() != 126 || !strings.Contains(s.errors.String(), "does not answer") {
		t.Errorf("%v: %s", s.command.ProcessState, s.errors)
	}
}

// The stub passes on signals, and stops and continues.
func TestTheStubPassesOnSignals(t *testing.T) {
	s := run(t)
	signal := func(want syscall.Signal) {
		t.Helper()
		msg, files, err := s.conn.Receive()
		fdsock.CloseAll(files)
		if err != nil || len(msg) != SignalSize || syscall.Signal(binary.NativeEndian.Uint32(msg)) != want {
			t.Fatalf("%d bytes instead of signal %d: %v", len(msg), want, err)
		}
	}
	pid := s.command.Process.Pid
	for _, one := range forwarded {
		if err := unix.Kill(pid, one); err != nil {
			t.Fatal(err)
		}
		signal(one)
	}
	if err := s.conn.Send(Stop().Message()); err != nil {
		t.Fatal(err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("%v: %v", status, err)
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	signal(unix.SIGCONT)
	if err := s.conn.Send(Exit(3, "").Message()); err != nil {
		t.Fatal(err)
	}
	if _ = s.command.Wait(); s.command.ProcessState.ExitCode() != 3 {
		t.Error(s.command.ProcessState)
	}
	if _, _, err := s.conn.Receive(); !errors.Is(err, io.EOF) && !fdsock.HungUp(err) {
		t.Error(err)
	}
}
