package events

// A Witness stores the events of those sandboxes that keep evidence (a signed log of everything done with
// them). It ignores all other sandboxes, at the cost of one system call.
type Witness interface {
	// Before stores an event in the sandbox's signed evidence log before the operation it announces. An error
	// means that the event is not stored, and the caller must not start the operation.
	Before(e Event) error
	// After stores an event in the sandbox's signed evidence log after the operation, unless Before has
	// stored it. An event without SandboxID belongs to the sandbox named Subject.
	After(e Event) error
	// Redact returns the arguments of a command as the event stream, which others may read, shows them: only
	// the name of the program if the sandbox keeps evidence, else all of them.
	Redact(sandbox string, args []string) []string
}

// Before passes the event e to the log's [Witness], which stores it in the sandbox's signed evidence log
// before the operation it announces. It appends nothing to the event stream. The caller starts the operation
// only if there is no error.
func (l *Log) Before(e Event) error {
	if l == nil || l.witness == nil || e.Unwitnessed {
		return nil
	}
	return l.witness().Before(e)
}
