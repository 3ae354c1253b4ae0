package events

import "time"

// A Check is a check of a sandbox's changes that has ended.
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

// When a check runs.
const (
	BeforePromotion = "before"
	AfterPromotion  = "after"
)

// CheckEnded appends the end of a check of the sandbox with this name and identifier.
func (l *Log) CheckEnded(name, id string, c Check) {
	if l == nil {
		return
	}
	d := Data{Name: c.Name, Reason: c.When, Status: &c.Status, Seconds: c.Took.Seconds()}
	args := c.Args
	if l.witness != nil {
		d.Check, d.Output = c.Args, c.Output
		args = l.witness.Redact(id, args)
	}
	d.Command = Command(args)
	l.Append(Event{Type: CheckEnded, Subject: name, SandboxID: id, Data: d})
}
