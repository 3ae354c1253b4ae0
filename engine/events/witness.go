package events

// A Witness stores the events of those sandboxes that keep evidence (a signed log of everything done with
// them). It ignores all other sandboxes, at the cost of one system call.
type Witness interface {
	// Before stores an event as evidence before the operation it announces. An error means that the event is
	// not stored, and the caller must not start the operation.
	Before(e Event) error
	// After stores an event as evidence after the operation, unless Before has stored it. An event without
	// SandboxID belongs to the sandbox named Subject.
	After(e Event) error
	// Redact returns the arguments of a command as the event stream, which others may read, shows them: only
	// the name of the program if the sandbox keeps evidence, else all of them.
	Redact(sandbox string, args []string) []string
}

// Before stores an event as evidence, through the log's [Witness], before the operation it announces. It
// appends nothing to the stream. The caller starts the operation only if there is no error.
func (l *Log) Before(e Event) error {
	if l == nil || l.witness == nil {
		return nil
	}
	return l.witness.Before(e)
}

// after stores an event of the stream as evidence, through the log's [Witness].
func (l *Log) after(e Event) error {
	if l.witness == nil {
		return nil
	}
	return l.witness.After(e)
}
