package events

// A Redactor returns the arguments args and the variables env (NAME=VALUE) of a command of the named sandbox, with
// notes in place of secrets and labelled content. An error means that the Redactor could not search them; then the
// command must not start.
type Redactor func(sandbox string, args, env []string) (shown, variables []string, err error)

// RedactBy sets r, which redacts the commands of all later events. It is not safe while events are appended.
func (l *Log) RedactBy(r Redactor) { l.redact = r }

// Shown returns the redacted arguments of a command of the named sandbox in the short form of [Command]. If they cannot
// be searched, it returns the name of the program.
func (l *Log) Shown(name string, args []string) []string {
	return Command(l.Redacted(name, args))
}

// Redacted returns all arguments of a command of the named sandbox, redacted by the log's [Redactor]. If they cannot be
// searched, it returns the name of the program and an ellipsis.
func (l *Log) Redacted(name string, args []string) []string {
	if l == nil || l.redact == nil || len(args) == 0 {
		return args
	}
	shown, _, err := l.redact(name, args, nil)
	if err != nil {
		return []string{args[0], "…"}
	}
	return shown
}

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

// public returns the arguments of a command of the sandbox with this id as the event stream shows them; see
// [Witness.Redact].
func (l *Log) public(id string, args []string) []string {
	if l == nil || l.witness == nil {
		return args
	}
	return l.witness().Redact(id, args)
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
