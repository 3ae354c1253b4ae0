package engine

import (
	"context"
	"errors"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/isolate"
)

// A Session is a sandbox made for one command, while that command runs and
// until its fate is decided by Keep or Discard.
type Session struct {
	// Record describes the sandbox.
	Record *catalog.Record
	e      *Engine
	intent *catalog.Intent
	host   *host
	proc   *isolate.Process
	hit    *catalog.Hit
	// refused is what the command was not allowed to reach.
	refused []RefusedAccess
}

// Run makes a sandbox and starts command in it. The sandbox is gone, or kept,
// when the Session says so; should this process be killed, everything inside
// dies with it and the next command takes the sandbox away.
// Errors: those of [Engine.New], and isolate's; then nothing is left.
func (e *Engine) Run(ctx context.Context, req Request, command isolate.Command) (*Session, error) {
	place, err := e.admitNew(ctx, req)
	if err != nil {
		return nil, err
	}
	rec, intent, err := e.intend(req, true)
	if err != nil {
		return nil, errors.Join(err, place.Close())
	}
	begun, allowed, err := e.beginBox(ctx, req.Workspace, req.Policy, &command, place)
	if err != nil {
		e.end(intent)
		return nil, err
	}
	real := searching()
	if err := e.make(ctx, req, rec); err != nil {
		err = errors.Join(err, begun.Close(), allowed.close(context.WithoutCancel(ctx)))
		e.endIfGone(intent, rec, err)
		return nil, err
	}
	s := &Session{Record: rec, e: e, intent: intent}
	s.host, s.proc, err = e.startHost(ctx, rec, begun, allowed, real, &command)
	if err != nil {
		return nil, errors.Join(err, s.Discard(context.WithoutCancel(ctx)))
	}
	e.tellNotes(s.host)
	return s, nil
}

// Process is the command.
func (s *Session) Process() *isolate.Process { return s.proc }

// Level says what isolation is in force.
func (s *Session) Level() isolate.Level { return s.host.box.Level() }

// Wait answers with how the command ended, after ending all that it left
// running: nothing writes to the sandbox any more.
func (s *Session) Wait(ctx context.Context) (isolate.Status, error) {
	st, err := s.proc.Wait(ctx)
	if err != nil {
		return st, err
	}
	if s.host != nil && s.host.losable.lost() {
		s.e.notice(s.host.losable.note)
	}
	if st.ExitCode() != 0 && s.host != nil {
		s.host.allowed.group.ProcessFailed()
	}
	return st, s.end(ctx)
}

// end ends every process of the sandbox.
func (s *Session) end(ctx context.Context) error {
	if s.host == nil {
		return nil
	}
	err := s.host.close(ctx)
	s.hit, s.refused = s.host.hit, s.host.refused
	s.host = nil
	return err
}

// Refused is what the command wanted to reach and was not allowed to, each once. The
// command must have ended.
func (s *Session) Refused() []RefusedAccess { return s.refused }

// Hit is the limit that ended the command, or one that it met, or nil. The command
// must have ended.
func (s *Session) Hit() *catalog.Hit { return s.hit }

// Changes compares the sandbox with its base. The command must have ended.
// The caller closes them.
func (s *Session) Changes(ctx context.Context) (*Changes, error) { return s.e.changes(ctx, s.Record) }

// Keep makes the sandbox one that stays, under name where it is not empty.
// After an error (errs.ErrExists: the name) it is still the session's.
func (s *Session) Keep(ctx context.Context, name string) error {
	h, err := s.e.cat.Hold(ctx, s.Record.Name)
	if err != nil {
		return err
	}
	defer h.Release()
	*h.Record = *s.Record
	if err := s.e.settle(ctx, h); err != nil {
		return err
	}
	if name != "" && name != h.Name {
		if err := s.rename(h, name); err != nil {
			return err
		}
	}
	h.Ephemeral = false
	now := catalog.Now()
	h.Note(now)
	if err := s.e.cat.NoteEnd(h.Record, now); err != nil {
		return err
	}
	if err := s.e.makeTmp(h.Record); err != nil {
		return err
	}
	if err := h.Save(); err != nil {
		return err
	}
	*s.Record = *h.Record
	s.e.end(s.intent)
	h.Release()
	s.e.keepBase(ctx, s.Record)
	return nil
}

// rename gives the sandbox its lasting name, covered by an intent for each.
func (s *Session) rename(h *catalog.Held, name string) error {
	next, err := s.e.cat.Begin(catalog.Making, name, h.ID)
	if err != nil {
		return err
	}
	if err := h.Rename(name); err != nil {
		s.e.end(next)
		return err
	}
	old := s.intent
	s.Record.Name, s.intent = name, next
	s.e.end(old)
	return nil
}

// Discard ends the sandbox's processes and removes it. Repeating it is safe.
func (s *Session) Discard(ctx context.Context) error {
	err := s.end(ctx)
	derr := s.e.discard(ctx, s.Record)
	s.e.endIfGone(s.intent, s.Record, derr)
	return errors.Join(err, derr)
}
