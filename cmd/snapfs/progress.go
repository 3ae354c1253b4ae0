package main

import (
	"fmt"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// A progress is a line on a terminal that shows how much work is done so far. It has no bar, because the
// total is known only at the end. If standard error is no terminal, it prints nothing.
type progress struct {
	ui    *ui
	next  time.Time
	shown bool
}

func newProgress(u *ui) *progress { return &progress{ui: u, next: time.Now().Add(patience)} }

// carried shows, in the progress line, how many bytes of a stream were sent or received so far.
func (p *progress) carried(n snapshot.Bytes) { p.say(n.String) }

// say prints the text of words as the progress line, unless the last one was printed a moment ago.
func (p *progress) say(words func() string) {
	if p.ui.json || time.Now().Before(p.next) || !isTerminal(p.ui.err) {
		return
	}
	p.next, p.shown = time.Now().Add(patience), true
	fmt.Fprint(p.ui.err, "\r\x1b[K"+words())
}

// end erases the progress line from the terminal, once the work is done.
func (p *progress) end() {
	if p.shown {
		fmt.Fprint(p.ui.err, "\r\x1b[K")
	}
}
