package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/treetest"
)

// A person sits at a terminal at which snapfs was started.
type person struct {
	t        *testing.T
	cmd      *exec.Cmd
	keyboard *os.File
	closed   chan struct{}

	mu     sync.Mutex
	screen bytes.Buffer
	seen   int
}

// sit starts a program at a terminal of 80 by 24, in a fresh workspace.
func sit(t *testing.T, b *desk, args ...string) *person {
	t.Helper()
	return sitAt(t, b, exec.Command(program(), args...))
}

// sitAt does the same with a command of any program.
func sitAt(t *testing.T, b *desk, cmd *exec.Cmd) *person {
	t.Helper()
	outer, inner := terminals(t)
	p := &person{t: t, cmd: cmd, keyboard: outer, closed: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = b.workspace, append(b.env(), "TERM=xterm", "PS1=ready> ")
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = inner, inner, inner
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inner.Close()
	go p.watch()
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil { // the test was given up
			t.Log("killing it: ", p.cmd.Process.Kill(), p.cmd.Wait())
			// Its background processes have the terminal open, and watch would read for ever.
			t.Log("and its session: ", exec.Command("pkill", "-KILL", "-s", strconv.Itoa(p.cmd.Process.Pid)).Run())
		}
		outer.Close()
		<-p.closed
	})
	return p
}

func terminals(t *testing.T) (outer, inner *os.File) {
	t.Helper()
	outer, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetUint32(int(outer.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(outer.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(outer.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
	}
	if err == nil {
		inner, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return outer, inner
}

func (p *person) watch() {
	defer close(p.closed)
	buf := make([]byte, 4096)
	for {
		n, err := p.keyboard.Read(buf)
		p.mu.Lock()
		p.screen.Write(buf[:n])
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *person) types(keys string) {
	p.t.Helper()
	if _, err := p.keyboard.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// sees waits for a text after all that was seen before.
func (p *person) sees(text string) {
	p.t.Helper()
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(5 * time.Millisecond) {
		p.mu.Lock()
		rest := p.screen.String()[p.seen:]
		i := strings.Index(rest, text)
		if i >= 0 {
			p.seen += i + len(text)
		}
		p.mu.Unlock()
		if i >= 0 {
			return
		}
	}
	p.t.Fatalf("%q did not appear on the screen:\n%q", text, p.screen.String())
}

// leaves waits until the program has ended, and answers with its status.
func (p *person) leaves() int {
	p.t.Helper()
	done := make(chan error, 1)
	go func() { done <- p.cmd.Wait() }()
	select {
	case err := <-done:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			p.t.Fatal(err)
		}
	case <-time.After(time.Minute):
		p.t.Fatalf("it does not end; the screen:\n%q", p.screen.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// A desk is a workspace and a state directory, which must be clean at the end.
type desk struct {
	t                *testing.T
	workspace, state string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	dir := treetest.Dir(t)
	treetest.Leaks(t)
	b := &desk{t, filepath.Join(dir, "w"), filepath.Join(dir, "state")}
	if err := errors.Join(os.Mkdir(b.workspace, 0o755), os.WriteFile(filepath.Join(b.workspace, "real"), []byte("real\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.clear)
	return b
}

// clear removes every sandbox and waits until its space is given back.
func (b *desk) clear() {
	b.snapfs("rm", "--all", "--any").want(0)
	b.snapfs("gc").want(0)
	b.forget()
}

// forget deletes the data of all promotions for undo and redo, which may be in directories that are not the
// test's own: at the root of the filesystem, for a file outside the workspace.
func (b *desk) forget() {
	undo, redo := b.snapfs("undo", "--list", "--any").want(0), b.snapfs("redo", "--list", "--any").want(0)
	forgotten := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(undo.stdout+redo.stdout), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && !forgotten[fields[0]] {
			b.snapfs("undo", "--forget", fields[0]).want(0)
			forgotten[fields[0]] = true
		}
	}
}

// env gives commands time to look for drift: on a busy machine 5 ms may pass without a look.
func (b *desk) env() []string {
	return append(os.Environ(), "SNAPFS_HOME="+b.state, "SNAPFS_DRIFT_TIME=10s")
}

// An outcome is how a command ended and what it wrote.
type outcome struct {
	t           *testing.T
	args        []string
	status      int
	stdout, all string
}

func (o outcome) want(status int) outcome {
	o.t.Helper()
	if o.status != status {
		o.t.Errorf("%q: status %d, want %d\n%s", o.args, o.status, status, o.all)
	}
	return o
}

// has fails the test for each text that the command did not write.
func (o outcome) has(texts ...string) outcome {
	o.t.Helper()
	for _, text := range texts {
		if !strings.Contains(o.all, text) {
			o.t.Errorf("%q did not write %q:\n%s", o.args, text, o.all)
		}
	}
	return o
}

func (b *desk) command(args ...string) *exec.Cmd {
	cmd := exec.Command(program(), args...)
	cmd.Dir, cmd.Env = b.workspace, b.env()
	return cmd
}

func (b *desk) snapfs(args ...string) outcome {
	b.t.Helper()
	return b.finish(b.command(args...))
}

func (b *desk) finish(cmd *exec.Cmd) outcome {
	b.t.Helper()
	var out, all strings.Builder
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	cmd.Stderr = &all
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		b.t.Fatal(err)
	}
	return outcome{b.t, cmd.Args[1:], cmd.ProcessState.ExitCode(), out.String(), out.String() + all.String()}
}

// real proves that the workspace is as it was.
func (b *desk) real(want ...string) {
	b.t.Helper()
	entries, err := os.ReadDir(b.workspace)
	if err != nil {
		b.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if strings.Join(names, " ") != strings.Join(append([]string{"real"}, want...), " ") {
		b.t.Errorf("the workspace holds %q", names)
	}
}
