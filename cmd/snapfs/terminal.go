package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/internal/stdio"
	"golang.org/x/term"
)

// A terminal connects a command in a sandbox with the person's terminal, or
// with whatever stands in its place. Where keys come from a terminal and output
// goes to one, the command gets a terminal of the sandbox's own, and what is
// typed and printed is carried across. In a pipeline, whose other commands use
// the person's terminal themselves, the streams are handed over as they are.
type terminal struct {
	ui *ui
	// carry: a terminal of the sandbox's own is connected to the person's.
	carry bool
	// signals are those to snapfs, from before the command starts: none is lost.
	signals chan os.Signal
	// feed brings the command what a real file holds, or is nil.
	feed *feed
}

func newTerminal(u *ui) *terminal {
	t := &terminal{ui: u, carry: isTerminal(u.in) && isTerminal(u.out), signals: make(chan os.Signal, 16)}
	// Whoever read what snapfs prints may have seen enough (2>&1 | head). That
	// must not end it before the sandbox is kept, applied or removed.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	signal.Notify(t.signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH)
	return t
}

// grace is how long the start of a command goes on after a signal: usually to its
// end, so that the signal is the command's.
const grace = 100 * time.Millisecond

// starting is the context in which a command is started.
func starting(ctx context.Context) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return later, func() { stop(); cancel() }
}

// command gives c its streams.
func (t *terminal) command(c engine.Command) (_ engine.Command, err error) {
	if !t.carry {
		c.Stdin, c.Stdout, c.Stderr = t.ui.in, t.ui.out, t.ui.err
		if t.feed, err = newFeed(t.ui.in); t.feed != nil {
			c.Stdin = t.feed.r
		}
		return c, err
	}
	size := t.size()
	c.TTY = &size
	if !isTerminal(t.ui.err) {
		c.Stderr = t.ui.err
	}
	return c, nil
}

func (t *terminal) size() engine.Size {
	cols, rows, err := term.GetSize(int(t.ui.in.Fd()))
	if err != nil {
		return engine.Size{Rows: 24, Cols: 80}
	}
	return engine.Size{Rows: uint16(rows), Cols: uint16(cols)}
}

// follow passes signals, keys and output until wait answers.
func (t *terminal) follow(ctx context.Context, p supervise.Process, wait func(context.Context) (engine.Status, error)) (engine.Status, error) {
	ctx = context.WithoutCancel(ctx) // the signals that would end it are the command's
	defer signal.Stop(t.signals)
	if t.feed != nil {
		defer t.feed.end()
	}
	done := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-t.signals:
				if s, ok := s.(syscall.Signal); ok {
					t.pass(s, p)
				}
			case <-done:
				return
			}
		}
	}()
	defer close(done)
	if p.PTY() == nil {
		return wait(ctx)
	}
	return t.carryOver(ctx, p, wait)
}

// pass hands a signal on. A new size of the terminal is told as such.
func (t *terminal) pass(s syscall.Signal, p supervise.Process) {
	if s == syscall.SIGWINCH {
		if t.carry {
			p.Resize(t.size()) //nolint:errcheck // the command may have ended
		}
		return
	}
	p.Signal(s) //nolint:errcheck // the command may have ended
}

// carryOver copies keys and output both ways, with the person's terminal in raw
// mode, and gives it back as it was.
func (t *terminal) carryOver(ctx context.Context, p supervise.Process, wait func(context.Context) (engine.Status, error)) (engine.Status, error) {
	fd := int(t.ui.in.Fd())
	old, err := term.MakeRaw(fd)
	if err != nil {
		return engine.Status{}, err
	}
	defer term.Restore(fd, old) //nolint:errcheck // a terminal that has gone needs no restoring
	t.ui.raw.Store(true)
	defer t.ui.raw.Store(false)
	stop, stopped, err := os.Pipe()
	if err != nil {
		return engine.Status{}, err
	}
	defer stop.Close()
	go carryKeys(p.PTY(), t.ui.in, stop)
	drained := make(chan struct{})
	go func() {
		carryOutput(t.ui.out, p.PTY(), stop)
		close(drained)
	}()
	st, err := wait(ctx)
	stopped.Close()
	<-drained
	return st, err
}

// carryKeys copies what is typed until stop is closed, and takes no key after
// that: it belongs to whoever reads next.
func carryKeys(pty, in, stop *os.File) {
	buf := make([]byte, 4096)
	for {
		ready, err := stdio.WaitReadable(-1, stop, in)
		if err != nil || ready == 0 {
			return
		}
		n, err := syscall.Read(int(in.Fd()), buf)
		if n > 0 {
			if _, err := pty.Write(buf[:n]); err != nil {
				return
			}
		}
		if n == 0 && err == nil || err != nil && !errors.Is(err, syscall.EINTR) && !errors.Is(err, syscall.EAGAIN) {
			return
		}
	}
}

// lastWords is how long output may stay away, once the command has ended, until
// it is taken for complete: what it left running may hold the terminal open.
const lastWords = 20 * time.Millisecond

// carryOutput copies what is printed until the terminal is closed, or stop is
// and nothing more comes.
func carryOutput(screen, pty, stop *os.File) {
	buf := make([]byte, 32<<10)
	ended := false
	for {
		var ready int
		var err error
		if ended {
			if ready, err = stdio.WaitReadable(lastWords, pty); ready < 0 {
				return
			}
		} else if ready, err = stdio.WaitReadable(-1, pty, stop); ready == 1 {
			ended = true
			continue
		}
		if err != nil {
			return
		}
		n, err := syscall.Read(int(pty.Fd()), buf)
		if n > 0 {
			screen.Write(buf[:n]) //nolint:errcheck // a screen that has gone must not stop the command
		}
		if err != nil && !errors.Is(err, syscall.EINTR) || n == 0 && err == nil {
			return // EIO is how a terminal says that it was closed
		}
	}
}
