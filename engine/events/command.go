package events

import (
	"strconv"
	"time"
)

// A Usage is the processor time and memory that the processes of a sandbox have used; 0 means not known.
type Usage struct {
	CPU         time.Duration
	MemoryBytes int64
}

// A Start is a command that is about to start in a sandbox. The event log will get two events for it, its
// start and its end. [Log.Starting] makes it.
type Start struct {
	log  *Log
	seen Event
	args []string // redacted
	from time.Time
}

// A Sandbox is what a [Log] needs to know of the sandbox of a command.
type Sandbox struct {
	Name, ID string
	// Unwitnessed is set if the caller knows that there is no evidence, a signed log of everything done with the sandbox.
	Unwitnessed bool
	// Redacted is set if the arguments of its commands may contain secrets or labelled content; see [Redactor].
	Redacted bool
}

// Starting prepares the events of a command, args with the environment env, in the sandbox of. If the sandbox keeps
// evidence (a signed log of everything done with it), Starting stores the start there. The caller starts the command
// only if there is no error.
func (l *Log) Starting(of Sandbox, args, env []string) (*Start, error) {
	s := &Start{log: l, from: time.Now()}
	run := strconv.FormatInt(s.from.UnixNano(), 36)
	if l != nil && l.redact != nil && of.Redacted {
		var err error
		if args, env, err = l.redact(of.Name, args, env); err != nil {
			return nil, err
		}
	}
	s.seen = Event{Type: CommandStarted, Subject: of.Name, SandboxID: of.ID, Unwitnessed: of.Unwitnessed, Data: Data{Run: run, Command: args, Env: env}}
	if err := l.Before(s.seen); err != nil {
		return nil, err
	}
	if s.args = args; !of.Unwitnessed {
		args = l.public(of.ID, args)
	}
	s.seen.Data.Command, s.seen.Data.Env = Command(args), nil
	return s, nil
}

// Command returns the redacted arguments of the command in the short form of the function [Command].
func (s *Start) Command() []string { return Command(s.args) }

// Refused appends an event to the event log: the requested command was not started in the sandbox. why is the
// reason.
func (s *Start) Refused(why error) {
	s.log.Append(Event{Type: CommandRefused, Subject: s.seen.Subject, SandboxID: s.seen.SandboxID, Data: Data{
		Run: s.seen.Data.Run, Command: s.seen.Data.Command[:min(len(s.seen.Data.Command), 1)], Reason: cut(why.Error(), 1024),
	}})
}

// Started appends the event that the command has started, and returns a function that appends the event of
// its end: with the exit status, the resources used, and the name of the limit that was hit, "" for none.
func (s *Start) Started() (ended func(status int, u Usage, limit string)) {
	s.from = time.Now()
	s.log.Append(s.seen)
	return func(status int, u Usage, limit string) {
		s.log.Append(Event{Type: CommandEnded, Subject: s.seen.Subject, SandboxID: s.seen.SandboxID, Unwitnessed: s.seen.Unwitnessed, Data: Data{
			Run: s.seen.Data.Run, Status: &status, Seconds: time.Since(s.from).Seconds(), CPUSeconds: u.CPU.Seconds(), MemoryBytes: u.MemoryBytes,
			Limit: limit,
		}})
	}
}
