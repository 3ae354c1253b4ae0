package events

import "time"

// A Check is a command, set by a profile or job, that has tested a sandbox's changes and ended. It is the
// data of an event.
type Check struct {
	// Name is the name of the stage, or "".
	Name string
	// When is BeforePromotion, or AfterPromotion if the check ran on the real machine.
	When   string
	Args   []string
	Status int
	Took   time.Duration
	// Output is the path of the file with its output, or "".
	Output string
}

// The values of Check.When: when the check of a sandbox's changes ran.
const (
	BeforePromotion = "before"
	AfterPromotion  = "after"
)

// CheckEnded appends the event that a check, a command that tests the changes of the sandbox with this name
// and identifier, has ended.
func (l *Log) CheckEnded(name, id string, c Check) {
	if l == nil {
		return
	}
	d := Data{Name: c.Name, Reason: c.When, Status: &c.Status, Seconds: c.Took.Seconds()}
	args := l.Redacted(name, c.Args)
	if l.witness != nil {
		d.Check, d.Output = args, c.Output
	}
	d.Command = Command(l.public(id, args))
	l.Append(Event{Type: CheckEnded, Subject: name, SandboxID: id, Data: d})
}
