package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/internal/stdio"
)

// A foreground handles the person's terminal while a command in a sandbox has a terminal of its own. It sets
// raw mode while snapfs is in the foreground of its shell's job control, and takes part in that: Ctrl-Z, bg
// and fg.
type foreground struct {
	ui  *ui
	fd  int      // of the person's terminal
	pty *os.File // the outer end of the command's terminal
	// resume sends SIGCONT to the command's process group, or at the thaw if the sandbox is frozen.
	resume func()
	// resumed gets a byte when snapfs was continued. Reading it is up to keys.
	resumed, wake *os.File

	mu   sync.Mutex
	old  *term.State // the mode that the shell gave the terminal, once known
	raw  bool
	over bool // the command has ended: the terminal is no more touched
}

// newForeground returns a foreground for the command p, which has a terminal. The caller calls restore when the
// command has ended.
func newForeground(u *ui, p supervise.Process) (*foreground, error) {
	resumed, wake, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	resume := func() { p.SignalGroup(syscall.SIGCONT) } //nolint:errcheck // it may have ended
	return &foreground{ui: u, fd: int(u.in.Fd()), pty: p.PTY(), resume: resume, resumed: resumed, wake: wake}, nil
}

// enter sets raw mode of the person's terminal if snapfs is in the foreground, and reports whether it is. On
// a terminal that does not control this process, snapfs always counts as in the foreground.
func (f *foreground) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	front := !f.over && !stdio.InBackground(f.ui.in)
	if front && !f.raw {
		old, err := term.MakeRaw(f.fd)
		if front = err == nil; front && f.old == nil {
			f.old = old
		}
	}
	f.raw = front
	f.ui.raw.Store(front)
	return front
}

// restore sets the person's terminal back to the mode that it had, if snapfs has changed it. over is set when
// the command has ended: after that, snapfs does not change the mode again.
func (f *foreground) restore(over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.raw {
		term.Restore(f.fd, f.old) //nolint:errcheck // a terminal that has gone needs no restoring
	}
	f.raw, f.over = false, over
	f.ui.raw.Store(false)
}

// continued is called after SIGCONT, when the shell lets snapfs continue. It sets raw mode of the terminal
// again, because the shell has set its own mode meanwhile.
func (f *foreground) continued() {
	f.mu.Lock()
	f.raw = false
	f.mu.Unlock()
	f.enter()
	f.wake.Write([]byte{0}) //nolint:errcheck // one that is full wakes the reader as well
}

// ended reports whether the command has ended and the terminal's mode was restored for good.
func (f *foreground) ended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

// stopTime is how long snapfs waits until SIGTSTP, which it has sent to itself, stops it. In a process group
// that no shell controls, the kernel ignores that signal, and snapfs continues.
const stopTime = 100 * time.Millisecond

// suspend stops the command and snapfs's own process group, as Ctrl-Z does, and returns when
// snapfs is continued. It needs the default action of SIGTSTP, which Go does not restore after
// signal.Notify.
func (f *foreground) suspend() {
	f.restore(false)
	stdio.SignalForeground(f.pty, syscall.SIGSTOP) //nolint:errcheck // it may have ended
	defer f.resume()
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	syscall.Kill(0, syscall.SIGTSTP) //nolint:errcheck // always permitted
	select {
	case <-continued:
	case <-time.After(stopTime):
	}
}

// backgroundPoll is how often snapfs, in the background, checks whether a shell has put it in the foreground.
// A running job gets no signal then.
const backgroundPoll = 100 * time.Millisecond

// keys copies keys from the person's terminal to the command's until stop is closed. It reads no key after
// that, nor while snapfs is in the background, because those belong to another program.
func (f *foreground) keys(stop *os.File) {
	buf := make([]byte, 4096)
	for {
		if !f.enter() {
			if f.ended() {
				return
			}
			if ready, err := stdio.WaitReadable(backgroundPoll, stop); err != nil || ready == 0 {
				return
			}
			continue
		}
		ready, err := stdio.WaitReadable(-1, stop, f.resumed, f.ui.in)
		switch {
		case err != nil || ready == 0:
			return
		case ready == 1:
			f.resumed.Read(buf) //nolint:errcheck // it only wakes
			continue
		case !f.enter():
			continue
		}
		n, err := syscall.Read(f.fd, buf)
		if n > 0 && f.write(buf[:n]) != nil || n == 0 && err == nil {
			return
		}
		if err != nil && err != syscall.EINTR && err != syscall.EAGAIN {
			return
		}
	}
}

// write passes keys on to the command's terminal. A Ctrl-Z that would stop nothing there suspends snapfs
// instead.
func (f *foreground) write(keys []byte) error {
	for i, key := range keys {
		if stdio.Suspends(f.pty, key) {
			if _, err := f.pty.Write(keys[:i]); err != nil {
				return err
			}
			f.suspend()
			return f.write(keys[i+1:])
		}
	}
	_, err := f.pty.Write(keys)
	return err
}
