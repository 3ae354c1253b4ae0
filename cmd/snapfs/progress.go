package main

import (
	"fmt"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// A progress is a line on a terminal that says how far long work has come. It
// has no bar: how much there is to do is known when it is done. In a pipe it
// says nothing.
type progress struct {
	ui    *ui
	next  time.Time
	shown bool
}

func newProgress(u *ui) *progress { return &progress{ui: u, next: time.Now().Add(patience)} }

// carried tells how much was sent or received.
func (p *progress) carried(n snapshot.Bytes) { p.say(n.String) }

// say says something, where the last words are long enough ago.
func (p *progress) say(words func() string) {
	if p.ui.json || time.Now().Before(p.next) || !isTerminal(p.ui.err) {
		return
	}
	p.next, p.shown = time.Now().Add(patience), true
	fmt.Fprint(p.ui.err, "\r\x1b[K"+words())
}

// end takes the line away.
func (p *progress) end() {
	if p.shown {
		fmt.Fprint(p.ui.err, "\r\x1b[K")
	}
}
