package engine

import (
	"context"
	"errors"

	"github.com/snapfs/snapfs/engine/attempts"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/egress"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/keypoint"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/engine/supervise/resources"
	"github.com/snapfs/snapfs/isolate"
)

// A Session is a sandbox that [Engine.Run] made for one command, and that command. The caller ends it with
// Keep, which makes the sandbox permanent, or Discard, which removes it.
type Session struct {
	// Record describes the sandbox.
	Record     *catalog.Record
	Engine     *Engine
	Intent     *catalog.Intent
	Supervisor *supervise.Supervisor
	Proc       *isolate.Process
	// Hit is the limit that ended the command, or one that it reached, or nil, and Refused are
	// the network accesses that were refused, each once: both after End.
	Hit     *catalog.LimitHit
	Refused []egress.RefusedAccess
	// Attempts is what the programs tried, where that is observed, or nil.
	Attempts *attempts.Log
	// Unreached is set if a failed command, or a process beside it, tried to reach a network that
	// the sandbox does not have: after Wait.
	Unreached bool
	// Hidden lists the paths that the sandbox's processes find empty, as [supervise.Supervisor] has them.
	Hidden []string

	ended func(isolate.Status, *catalog.LimitHit) // announces the end of the command
	why   catalog.Why                             // of the snapshot after the last command
}

// Run makes a sandbox and starts a command in it. If this process is killed, the kernel kills the sandbox's
// processes, and the next command removes the sandbox. After an error no sandbox is left. Errors: those of
// [Engine.New] and of package isolate.
func (e *Engine) Run(ctx context.Context, req hostfs.Request, command isolate.Command) (*Session, error) {
	if err := policy.BoundBySite(&req.Policy); err != nil {
		return nil, err
	}
	place, err := e.Supervise.AdmitNew(ctx, req)
	if err != nil {
		return nil, err
	}
	rec, intent, err := e.Sandboxes.Intend(req, true)
	if err != nil {
		return nil, errors.Join(err, place.Close())
	}
	command.Env = hostfs.NameSandbox(command.Env, rec.Name)
	begun, allowed, err := e.Supervise.Prepare(ctx, req.Workspace, req.Policy, &command, place)
	if err != nil {
		e.Sandboxes.End(intent)
		return nil, err
	}
	search := req.FreshSearch()
	env, err := e.Sandboxes.Make(ctx, req, rec)
	if err != nil {
		err = errors.Join(err, begun.Close(), allowed.Close(context.WithoutCancel(ctx)))
		e.Sandboxes.EndIfGone(intent, rec, err)
		return nil, err
	}
	s := &Session{Record: rec, Engine: e, Intent: intent}
	if err := s.start(ctx, begun, allowed, search.With(env), command); err != nil {
		return nil, err
	}
	return s, nil
}

// RunFork makes a fork of the sandbox from, with its files as they are now, and starts a command in the fork,
// as [Engine.Run] does in a new sandbox: if this process is killed, the fork's processes are, and the next
// command removes it. bound changes the policy of the fork. The fork's snapshot "origin" holds the files at
// its beginning. After an error no fork is left, or the next command removes it. Errors: those of
// [Engine.Fork] and of package isolate.
func (e *Engine) RunFork(ctx context.Context, from string, bound func(*catalog.Policy), command isolate.Command) (*Session, error) {
	rec, intent, err := e.fork(ctx, from, "", "", forkOptions{Ephemeral: true, Bound: bound})
	if err != nil {
		return nil, err
	}
	s := &Session{Record: rec, Engine: e, Intent: intent}
	later := context.WithoutCancel(ctx)
	place, err := e.Supervise.Admit(ctx, rec.Policy.Limits, supervise.Admission{})
	if err != nil {
		return nil, errors.Join(err, s.Discard(later))
	}
	command.Env = hostfs.NameSandbox(command.Env, rec.Name)
	begun, allowed, err := e.Supervise.Prepare(ctx, rec.Workspace, rec.Policy, &command, place)
	if err != nil {
		return nil, errors.Join(err, s.Discard(later))
	}
	if err := s.start(ctx, begun, allowed, hostfs.SearchSecrets(), command); err != nil {
		return nil, err
	}
	return s, nil
}

// start starts the command of a session in begun, its prepared container, with the resources allowed. search is the
// search for this machine's secrets, to be hidden. After an error the session's sandbox is removed.
func (s *Session) start(ctx context.Context, begun *isolate.Prepared, allowed *resources.Resources, search *hostfs.Search, command isolate.Command) error {
	e, rec, later := s.Engine, s.Record, context.WithoutCancel(ctx)
	start, err := e.Supervise.Starting(rec, &command)
	if err != nil {
		return errors.Join(err, begun.Close(), allowed.Close(later), s.Discard(later))
	}
	s.Supervisor, s.Proc, err = e.Supervise.Start(ctx, rec, begun, allowed, search, &command)
	if err != nil {
		start.Refused(err)
		return errors.Join(err, s.Discard(later))
	}
	s.Hidden = s.Supervisor.Hidden
	s.ended = e.Supervise.Started(rec, s.Supervisor, start)
	s.why = catalog.Why{Point: catalog.AtExec, When: keypoint.After, Command: start.Command()}
	e.Supervise.ReportNotes(s.Supervisor)
	return nil
}

// Wait waits for the command, ends every process that the command left running, and returns the command's
// exit status or signal. Afterwards nothing writes to the sandbox.
func (s *Session) Wait(ctx context.Context) (isolate.Status, error) {
	st, err := s.Proc.Wait(ctx)
	if err != nil {
		return st, err
	}
	status := st.ExitCode()
	s.why.Status = &status
	if s.Supervisor != nil {
		s.ended(st, nil)
	}
	if s.Supervisor != nil && s.Supervisor.Monitor.Killed() {
		s.Engine.notice(s.Supervisor.Monitor.Note)
	}
	if st.ExitCode() != 0 && s.Supervisor != nil {
		s.Unreached = s.Record.Policy.Network == string(isolate.NetworkNone) && s.Supervisor.Container.Unreached()
		if s.Supervisor.Resources.Group != nil {
			s.Supervisor.Resources.Group.ProcessFailed()
		}
	}
	return st, s.End(ctx)
}

// End ends every process of the sandbox. It stores the limit that the command reached and the network
// accesses that were refused, both from the supervisor, in s.Hit and s.Refused.
func (s *Session) End(ctx context.Context) error {
	if s.Supervisor == nil {
		return nil
	}
	err := s.Supervisor.Close(ctx)
	if p := s.Supervisor.Proxy; p != nil {
		s.Record.Policy.Network = p.Network() // with what a person allowed meanwhile
	}
	s.Hit, s.Refused, s.Attempts = s.Supervisor.Hit, s.Supervisor.Refused, s.Supervisor.Attempts
	s.Supervisor = nil
	return err
}

// Keep makes the session's sandbox permanent, and renames it to name unless that is empty. After an error
// (errs.ErrExists: the name) the caller must still end the session, by Keep or Discard.
func (s *Session) Keep(ctx context.Context, name string) error {
	h, err := s.Engine.cat.Lock(ctx, s.Record.Name)
	if err != nil {
		return err
	}
	defer h.Release()
	*h.Record = *s.Record
	if err := s.Engine.Supervise.Sync(ctx, h); err != nil {
		return err
	}
	if name != "" && name != h.Name {
		if err := s.rename(h, name); err != nil {
			return err
		}
	}
	h.Ephemeral = false
	now := catalog.Now()
	h.RecordAge(now)
	if err := s.Engine.cat.NoteEnd(h.Record, now); err != nil {
		return err
	}
	if err := s.Engine.Sandboxes.MakeTmp(h.Record); err != nil {
		return err
	}
	if err := h.Save(); err != nil {
		return err
	}
	s.Engine.KeyPoints.Take(ctx, h, s.Engine.Supervise.SealAll, keypoint.AfterCommand(h.Policy.KeyPoints, s.why, s.Hit))
	*s.Record = *h.Record
	s.Engine.Sandboxes.End(s.Intent)
	h.Release()
	s.Engine.Baseline.Record(ctx, s.Record)
	return nil
}

// rename gives the sandbox its permanent name in the catalogue. An intent for each of the two names is stored
// meanwhile, from which the next command finishes or removes the sandbox after a crash.
func (s *Session) rename(h *catalog.Locked, name string) error {
	next, err := s.Engine.cat.Begin(catalog.Making, name, h.ID)
	if err != nil {
		return err
	}
	if err := h.Rename(name); err != nil {
		s.Engine.Sandboxes.End(next)
		return err
	}
	old := s.Intent
	s.Engine.announceRename(s.Record, name)
	s.Record.Name, s.Intent = name, next
	s.Engine.Sandboxes.End(old)
	return nil
}

// Discard ends the processes of the session's sandbox and removes the sandbox. Repeating it is safe.
func (s *Session) Discard(ctx context.Context) error {
	err := s.End(ctx)
	derr := s.Engine.Sandboxes.Discard(ctx, s.Record)
	s.Engine.Sandboxes.EndIfGone(s.Intent, s.Record, derr)
	return errors.Join(err, derr)
}

// Promote promotes the changes of the session's sandbox to the real tree, as [reconcile.Reconciler.Promote]
// does. The command must have ended. stays means that the sandbox may remain afterwards: then Promote first
// copies into it the files that it has renamed on a live base.
func (s *Session) Promote(ctx context.Context, o reconcile.PromoteOptions, stays bool) (reconcile.Promoted, error) {
	if stays {
		err := s.Engine.Sandboxes.SyncTrees(ctx, s.Record)
		if err == nil {
			err = s.Engine.Reconcile.Detach(ctx, s.Record, snapshot.Idle, o.PlanOptions)
		}
		if err != nil {
			return reconcile.Promoted{}, err
		}
	}
	return s.Engine.Reconcile.PromoteRecord(ctx, s.Record, o)
}

// Again runs another command in the session's sandbox, after the last one has ended, and waits for it.
func (s *Session) Again(ctx context.Context, command isolate.Command) (st isolate.Status, err error) {
	if err := s.Engine.Sandboxes.SyncTrees(ctx, s.Record); err != nil {
		return st, err
	}
	command.Env = hostfs.NameSandbox(command.Env, s.Record.Name)
	start, err := s.Engine.Supervise.Starting(s.Record, &command)
	if err != nil {
		return st, err
	}
	if s.Supervisor, s.Proc, err = s.Engine.Supervise.Start(ctx, s.Record, nil, nil, hostfs.SearchSecrets(), &command); err != nil {
		start.Refused(err)
		return st, err
	}
	s.ended = s.Engine.Supervise.Started(s.Record, s.Supervisor, start)
	s.why = catalog.Why{Point: catalog.AtExec, When: keypoint.After, Command: start.Command()}
	s.Engine.Supervise.ReportNotes(s.Supervisor)
	st, err = s.Wait(ctx)
	if err != nil {
		err = errors.Join(err, s.End(context.WithoutCancel(ctx)))
	}
	return st, err
}
