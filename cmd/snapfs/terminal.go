package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/internal/relay"
	"golang.org/x/term"
)

// A terminal connects a command in a sandbox with the person's standard streams. If input and output are
// terminals, the command gets a pseudoterminal of the sandbox, and snapfs copies keys and output. Otherwise,
// as in a pipeline, a relay copies each stream that the sandbox must not have.
type terminal struct {
	ui *ui
	// outlives is set if the sandbox may go on after the command, so that it may keep no pipe.
	outlives bool
	relay    *relay.Relay
	// screen is the person's terminal while ownPTY is set.
	screen *relay.Screen
	// ownPTY is set if snapfs copies between a pseudoterminal of the sandbox and the person's
	// terminal.
	ownPTY bool
	// signals receives the signals sent to snapfs, from the start of the program, so that none
	// is lost.
	signals chan os.Signal
	// catching is closed once snapfs catches all signals that it passes on to the command.
	catching chan struct{}
	// foreground is set while ownPTY is and the command runs.
	foreground *foreground
	// feed copies a regular file to the command's standard input, or is nil.
	feed *feed
}

// terminal returns the connection of a command in a sandbox with the person's streams, which gets the signals that
// have come since the program started. outlives is set if the sandbox may go on after the command.
func (a *app) terminal(outlives bool) *terminal {
	u := a.ui
	t := &terminal{ui: u, outlives: outlives, ownPTY: isTerminal(u.in) && isTerminal(u.out), signals: a.signals, catching: make(chan struct{})}
	go func() { // slow: the runtime switches threads twice for each signal
		defer close(t.catching)
		// A reader of snapfs's output may stop early (2>&1 | head). SIGPIPE must not end
		// snapfs before it has decided on the sandbox.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		signal.Notify(t.signals, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
		if t.ownPTY {
			signal.Notify(t.signals, syscall.SIGWINCH, syscall.SIGCONT)
		}
	}()
	return t
}

// grace is how long starting a command may continue after a signal, so that the command itself can get the
// signal.
const grace = 100 * time.Millisecond

// starting returns the context for starting a command in a sandbox. It ends a little later than ctx (see
// grace).
func starting(ctx context.Context) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return later, func() { stop(); cancel() }
}

// command returns c with its standard streams set: to a pseudoterminal, to the pipes of a relay, to a feed of
// a regular file as input, or to the person's streams. The caller then calls follow. If the command does not
// start, this process must end, which closes the open files.
func (t *terminal) command(c engine.Command) (_ engine.Command, err error) {
	<-t.catching
	if t.ownPTY {
		size := t.size()
		c.TTY = &size
		t.screen = relay.NewScreen(t.ui.out)
		if isTerminal(t.ui.err) {
			return c, nil
		}
		t.relay, err = relay.Open(nil, nil, t.ui.err, t.outlives)
	} else {
		t.relay, err = relay.Open(t.ui.in, t.ui.out, t.ui.err, t.outlives)
	}
	if err != nil {
		return c, err
	}
	c.Stdin, c.Stdout, c.Stderr = t.relay.In, t.relay.Out, t.relay.Err
	if c.Stdin != nil && c.Stdin == t.ui.in {
		if t.feed, err = newFeed(t.ui.in); t.feed != nil {
			c.Stdin = t.feed.r
		}
	}
	return c, err
}

// tail returns the last output of the command that passed through this process, which is that to a terminal.
// If the command failed, snapfs searches it for paths that are hidden from the sandbox.
func (t *terminal) tail() string {
	tail := ""
	if t.screen != nil {
		tail = t.screen.Tail() + "\n"
	}
	if t.relay != nil {
		tail += t.relay.Tail()
	}
	return tail
}

func (t *terminal) size() engine.Size {
	cols, rows, err := term.GetSize(int(t.ui.in.Fd()))
	if err != nil {
		return engine.Size{Rows: 24, Cols: 80}
	}
	return engine.Size{Rows: uint16(rows), Cols: uint16(cols)}
}

// follow passes signals, keys and output between the person and the command p until wait returns.
func (t *terminal) follow(ctx context.Context, p supervise.Process, wait func(context.Context) (engine.Status, error)) (st engine.Status, err error) {
	ctx = context.WithoutCancel(ctx)                                    // the signals that would end it are the command's
	defer time.AfterFunc(sameSignal, func() { signal.Stop(t.signals) }) // a late signal is still the command's
	if t.feed != nil {
		defer t.feed.end()
	}
	if p.PTY() != nil {
		if t.foreground, err = newForeground(t.ui, p); err != nil {
			return engine.Status{}, err
		}
		defer t.screen.Reset()
		defer t.foreground.restore(true)
	}
	done, ended, giveUp := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go t.passSignals(p, ended, giveUp, done)
	defer close(done)
	if t.relay != nil {
		t.relay.Start()
		defer func() {
			t.relay.End(giveUp)
			if lost := t.relay.Lost(); lost != nil {
				t.ui.notice("the end of the command's output is lost: " + lost.Error())
				if st.Code == 0 && st.Signal == 0 { // as for a command that writes to the file itself
					st.Code = 1
				}
			}
		}()
	}
	defer close(ended)
	if p.PTY() == nil {
		return wait(ctx)
	}
	return t.copyInRawMode(ctx, p, wait)
}

// passSignals passes signals on to the command p until done is closed. Once ended is closed, which means that
// the command has ended, the first signal closes giveUp instead, so that snapfs stops copying the rest of the
// output.
func (t *terminal) passSignals(p supervise.Process, ended, giveUp, done chan struct{}) {
	for given := false; ; {
		select {
		case sent := <-t.signals:
			s, ok := sent.(syscall.Signal)
			if !ok {
				continue
			}
			select {
			case <-ended:
				if s != syscall.SIGWINCH && s != syscall.SIGCONT && !given {
					given = true
					close(giveUp)
				}
			default:
				t.pass(s, p)
			}
		case <-done:
			return
		}
	}
}

// pass sends a signal on to the command. For SIGWINCH it sets the size of the command's pseudoterminal
// instead, if there is one. For SIGCONT it sets that size and raw mode of the person's terminal again.
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

// copyInRawMode copies keys and output between the person's terminal, which it sets to raw mode, and the
// command's, until wait returns.
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
		relay.CopyTerminal(t.screen, p.PTY(), stop)
		close(drained)
	}()
	st, err := wait(ctx)
	stopped.Close()
	<-drained
	return st, err
}
