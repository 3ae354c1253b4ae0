package events

// A Witness stores the events of those sandboxes that keep evidence. It ignores all other
// sandboxes, at the cost of one system call.
type Witness interface {
	// Before stores an event before its act. An error refuses the act: it means that the event is
	// not stored.
	Before(e Event) error
	// After stores an event whose act is done, unless Before has stored it. An event without
	// SandboxID belongs to the sandbox named Subject.
	After(e Event) error
	// Redact returns the arguments of a command as others may read them.
	Redact(sandbox string, args []string) []string
}

// Before has an event witnessed before its act, and appends nothing to the stream. The caller does
// the act only if there is no error.
func (l *Log) Before(e Event) error {
	if l == nil || l.witness == nil {
		return nil
	}
	return l.witness.Before(e)
}

// after has an event of the stream witnessed.
func (l *Log) after(e Event) error {
	if l.witness == nil {
		return nil
	}
	return l.witness.After(e)
}
