package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/snapfs/snapfs/workflow/race"
	"golang.org/x/term"
)

// patience is how long work must last before its progress is shown for the first time, and the time between
// two updates.
const patience = 200 * time.Millisecond

// A board shows the progress of a race: on a terminal as a table that is redrawn, elsewhere as a line for
// each finished attempt.
type board struct {
	ui    *ui
	quiet bool
	live  bool

	mu       sync.Mutex
	attempts []race.Attempt
	drawn    int // lines on the screen
	stop     chan struct{}
	stopped  sync.WaitGroup
}

func newBoard(u *ui, req race.Request, quiet bool) *board {
	b := &board{ui: u, quiet: quiet || u.json, live: isTerminal(u.err) && !quiet && !u.json, stop: make(chan struct{})}
	for i := range req.Attempts {
		b.attempts = append(b.attempts, race.Attempt{Number: i + 1, State: race.Waiting})
	}
	if b.live {
		b.stopped.Go(b.redraw)
	}
	return b
}

// redraw draws the table with the states of a race's attempts again at intervals, until the race is over.
func (b *board) redraw() {
	tick := time.NewTicker(patience)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			b.draw(now)
		case <-b.stop:
			return
		}
	}
}

// note stores the new state of an attempt for the table. Without a terminal it prints a line for a finished
// attempt.
func (b *board) note(a race.Attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.attempts[a.Number-1].Why
	b.attempts[a.Number-1] = a
	if b.quiet || b.live {
		return
	}
	if !a.State.Final() {
		if a.Why != was {
			b.ui.notice(fmt.Sprintf("attempt %d: %s", a.Number, a.Why))
		}
		return
	}
	line := fmt.Sprintf("attempt %d: %s", a.Number, stateOfAttempt(a))
	if !a.Started.IsZero() {
		line += " after " + tookOf(a, time.Time{})
	}
	b.ui.notice(line + ": " + a.Output)
}

// draw replaces the table of attempts on the screen. A table that does not fit becomes one line with the
// number of attempts in each state.
func (b *board) draw(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cols, rows, err := term.GetSize(int(b.ui.err.Fd()))
	if err != nil || cols <= 0 {
		cols, rows = 80, 24
	}
	var text strings.Builder
	if len(b.attempts)+2 < rows {
		printAttempts(&text, b.attempts, now) //nolint:errcheck // a Builder takes everything
	} else {
		text.WriteString(b.sum() + "\n")
	}
	var out strings.Builder
	b.erase(&out)
	for line := range strings.Lines(text.String()) {
		if r := []rune(strings.TrimRight(line, "\n")); len(r) >= cols {
			line = string(r[:cols-1]) + "\n"
		}
		out.WriteString(line)
		b.drawn++
	}
	fmt.Fprint(b.ui.err, out.String())
}

// erase adds to out the control sequences that remove the table of a race's attempts from the screen.
func (b *board) erase(out *strings.Builder) {
	if b.drawn > 0 {
		fmt.Fprintf(out, "\r\x1b[%dA\x1b[J", b.drawn)
	}
	b.drawn = 0
}

// sum returns a line of text with the number of a race's attempts in each state, such as "3 running, 1
// passed".
func (b *board) sum() string {
	n := map[race.AttemptState]int{}
	for _, a := range b.attempts {
		n[a.State]++
	}
	var parts []string
	for _, s := range []race.AttemptState{
		race.Waiting, race.Running, race.Checking, race.Scoring,
		race.Passed, race.Failed, race.TimedOut, race.Stopped, race.Broken,
	} {
		if n[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[s], s))
		}
	}
	return strings.Join(parts, ", ")
}

// end stops redrawing the table of attempts and removes it from the screen.
func (b *board) end() {
	close(b.stop)
	b.stopped.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	var out strings.Builder
	b.erase(&out)
	if b.live {
		fmt.Fprint(b.ui.err, out.String())
	}
}
