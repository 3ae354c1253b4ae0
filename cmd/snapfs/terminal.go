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

// A terminal connects a command in a sandbox with the person's streams. If input and output
// are terminals, the command gets a pseudoterminal of the sandbox, and snapfs copies keys and
// output. Otherwise, as in a pipeline, the command gets the streams as they are.
type terminal struct {
	ui *ui
	// ownPTY is set if snapfs copies between a pseudoterminal of the sandbox and the person's
	// terminal.
	ownPTY bool
	// signals receives the signals sent to snapfs, from before the command starts, so that
	// none is lost.
	signals chan os.Signal
	// foreground is set while ownPTY is and the command runs.
	foreground *foreground
	// feed copies a regular file to the command's standard input, or is nil.
	feed *feed
}

func newTerminal(u *ui) *terminal {
	t := &terminal{ui: u, ownPTY: isTerminal(u.in) && isTerminal(u.out), signals: make(chan os.Signal, 16)}
	// A reader of snapfs's output may stop early (2>&1 | head). SIGPIPE must not end
	// snapfs before it has decided on the sandbox.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	signal.Notify(t.signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	if t.ownPTY {
		signal.Notify(t.signals, syscall.SIGWINCH, syscall.SIGCONT)
	}
	return t
}

// grace is how long starting a command may still take after a signal, so that the command can
// get the signal.
const grace = 100 * time.Millisecond

// starting returns the context for starting a command: it ends grace after ctx.
func starting(ctx context.Context) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return later, func() { stop(); cancel() }
}

// command returns c with its streams set to the person's, to a pseudoterminal, or to a feed of a regular file as
// input.
func (t *terminal) command(c engine.Command) (_ engine.Command, err error) {
	if !t.ownPTY {
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

// follow passes signals, keys and output between the person and the command until wait
// returns.
func (t *terminal) follow(ctx context.Context, p supervise.Process, wait func(context.Context) (engine.Status, error)) (engine.Status, error) {
	ctx = context.WithoutCancel(ctx) // the signals that would end it are the command's
	defer signal.Stop(t.signals)
	if t.feed != nil {
		defer t.feed.end()
	}
	if pty := p.PTY(); pty != nil {
		var err error
		if t.foreground, err = newForeground(t.ui, pty); err != nil {
			return engine.Status{}, err
		}
		defer t.foreground.restore(true)
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
	return t.copyInRawMode(ctx, p, wait)
}

// pass sends a signal on to the command. SIGWINCH instead sets the size of its pseudoterminal, if it has one, and
// SIGCONT takes back the person's terminal.
func (t *terminal) pass(s syscall.Signal, p supervise.Process) {
	switch s {
	case syscall.SIGCONT:
		t.foreground.continued()
		p.Resize(t.size()) //nolint:errcheck // the command may have ended
	case syscall.SIGWINCH:
		p.Resize(t.size()) //nolint:errcheck // as above
	default:
		p.Signal(s) //nolint:errcheck // the command may have ended
	}
}

// copyInRawMode copies keys and output, with the person's terminal in raw mode.
func (t *terminal) copyInRawMode(ctx context.Context, p supervise.Process, wait func(context.Context) (engine.Status, error)) (engine.Status, error) {
	stop, stopped, err := os.Pipe()
	if err != nil {
		return engine.Status{}, err
	}
	defer stop.Close()
	t.foreground.enter()
	go t.foreground.keys(stop)
	drained := make(chan struct{})
	go func() {
		copyOutput(t.ui.out, p.PTY(), stop)
		close(drained)
	}()
	st, err := wait(ctx)
	stopped.Close()
	<-drained
	return st, err
}

// lastWords is how long the pseudoterminal must be silent after the command's end before its
// output counts as complete; a background process may hold it open.
const lastWords = 20 * time.Millisecond

// copyOutput copies output until the pseudoterminal is closed, or until stop is closed and no
// output is left.
func copyOutput(screen, pty, stop *os.File) {
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
