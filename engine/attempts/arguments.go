package attempts

import (
	"strings"
	"sync"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/pathlist"
)

// Arguments announces the calls of programs in one sandbox that its profile refuses for their arguments: the first call
// with the same first arguments, at most maxAttempts in all. It is safe for concurrent use.
type Arguments struct {
	rec    *catalog.Record
	log    *Log // or nil
	events *events.Log

	mu    sync.Mutex
	calls map[string]int // by program and arguments: the index in the list of log, or -1
}

// NewArguments returns the Arguments of the sandbox rec, which adds events to the event log, and attempts to log unless
// that is nil.
func NewArguments(rec *catalog.Record, log *Log, list *events.Log) *Arguments {
	return &Arguments{rec: rec, log: log, events: list, calls: map[string]int{}}
}

// Refused counts a refused call of the program at a path, by a process called by. words are the program's name and its
// first arguments, and reason is the cause. The first call of its kind becomes an event.
func (a *Arguments) Refused(program string, words []string, by, reason string) {
	const longest = 200
	text := strings.Join(words, " ")
	text = strings.ToValidUTF8(text[:min(len(text), longest)], "")
	a.mu.Lock()
	defer a.mu.Unlock()
	key := program + " " + text
	if i, ok := a.calls[key]; ok || len(a.calls) > maxAttempts {
		if ok {
			a.log.again(i)
		}
		return
	}
	d := events.Data{Name: Program, Reason: "further programs are refused for their arguments and not listed"}
	at := -1
	if len(a.calls) < maxAttempts {
		at = a.log.append(Attempt{Kind: Program, Path: text, By: by, Times: 1})
		d.Reason = "tools: " + pathlist.Printable(text) + ": " + reason
		if by != "" {
			d.Reason += ", by " + pathlist.Printable(by)
		}
		d.AddPath(program)
	}
	a.calls[key] = at
	a.events.Append(events.Event{Type: events.AccessRefused, Subject: a.rec.Name, SandboxID: a.rec.ID, Data: d})
}

// append adds an attempt to the log and returns its index; -1 if l is nil.
func (l *Log) append(a Attempt) int {
	if l == nil {
		return -1
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, a)
	return len(l.list) - 1
}

// again counts another attempt like the one at an index of the log's list, unless that is -1.
func (l *Log) again(i int) {
	if l != nil && i >= 0 {
		l.mu.Lock()
		l.list[i].Times++
		l.mu.Unlock()
	}
}
