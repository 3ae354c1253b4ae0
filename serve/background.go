package serve

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
)

// A Started identifies a command that [Service.Start] has started in the background of a sandbox.
type Started struct {
	Sandbox string `json:"sandbox"`
	Command int    `json:"command" jsonschema:"its number, for sandbox_wait"`
	Output  string `json:"output" jsonschema:"the name of its output, for sandbox_output"`
}

// Start starts a command in the background of a sandbox. It runs until it ends by itself, its sandbox is
// removed, or a limit ends it. The end of this server does not end it. Errors: those of
// [supervise.Manager.Detach].
func (s *Service) Start(ctx context.Context, q CommandLine) (Started, error) {
	r := Started{Sandbox: q.Sandbox}
	c, err := s.command(q)
	if err != nil {
		return r, err
	}
	e, _, err := s.enter(ctx, q.Sandbox)
	if err != nil {
		return r, err
	}
	r.Command, err = e.Supervise.Detach(ctx, q.Sandbox, c, supervise.ExecOptions{Admission: s.Rules.admission()})
	r.Output = startKind + "-" + strconv.Itoa(r.Command)
	return r, err
}

// A WaitRequest is a coding agent's request to wait for a background command of a sandbox, or first to end
// all processes of the sandbox.
type WaitRequest struct {
	Sandbox  string `json:"sandbox" jsonschema:"the sandbox's name"`
	Command  int    `json:"command,omitempty" jsonschema:"the number from sandbox_start; by default the last one"`
	TimeoutS int    `json:"timeout_s,omitempty" jsonschema:"return after this many seconds, whether the command has ended or not; by default 20, at most 1800"`
	Stop     bool   `json:"stop,omitempty" jsonschema:"end all processes of the sandbox first, also those of other commands"`
}

// A Waited is the reply to a [WaitRequest]: the state of a background command of a sandbox, and its output so
// far.
type Waited struct {
	Sandbox string `json:"sandbox"`
	Command int    `json:"command"`
	Running bool   `json:"running"`
	Exit    *int   `json:"exit,omitempty" jsonschema:"the exit status; none while it runs, or if it was killed with the sandbox's processes"`
	State   string `json:"state" jsonschema:"how it is or ended, in words"`
	Log     Text   `json:"log" jsonschema:"its output so far, both streams together"`
	Output  string `json:"output" jsonschema:"the name of the whole output for sandbox_output"`
}

// usualWait is how long [Service.Wait] waits for a background command if the request sets no timeout.
const usualWait = 20 * time.Second

// Wait waits until a background command ends or the request's timeout has passed, and returns the command's
// state and output. Errors: ErrNotFound.
func (s *Service) Wait(ctx context.Context, q WaitRequest) (Waited, error) {
	r := Waited{Sandbox: q.Sandbox, Command: q.Command}
	limit, err := timeout(q.TimeoutS, usualWait)
	if err != nil {
		return r, err
	}
	e, _, err := s.enter(ctx, q.Sandbox)
	if err != nil {
		return r, err
	}
	if q.Stop {
		if err := e.Supervise.Stop(ctx, q.Sandbox); err != nil {
			return r, err
		}
	}
	d, err := background(e, q.Sandbox, q.Command)
	if err != nil {
		return r, err
	}
	waiting, done := context.WithTimeout(ctx, limit)
	defer done()
	log := newClip()
	if err := e.Supervise.CopyOutput(waiting, log, q.Sandbox, d.ID, true); err != nil && waiting.Err() == nil {
		return r, err
	}
	if err := ctx.Err(); err != nil {
		return r, errs.With("waiting for a command", "", errors.Join(errs.ErrInterrupted, err))
	}
	if d, err = background(e, q.Sandbox, d.ID); err != nil {
		return r, err
	}
	r.Command, r.Running, r.Exit, r.State = d.ID, d.Running, d.Status, d.Describe()
	r.Log, r.Output = log.text(), startKind+"-"+strconv.Itoa(d.ID)
	return r, nil
}

// background returns the background command of the sandbox with the number id, or the last one for 0. Errors:
// ErrNotFound.
func background(e *engine.Engine, sandbox string, id int) (supervise.Detached, error) {
	all, err := e.Supervise.DetachedOf(sandbox)
	if err != nil {
		return supervise.Detached{}, err
	}
	for i := len(all) - 1; i >= 0; i-- {
		if id == 0 || all[i].ID == id {
			return all[i], nil
		}
	}
	text := "no command was started in the background"
	if id != 0 {
		text = fmt.Sprintf("no background command has the number %d", id)
	}
	return supervise.Detached{}, errs.New("waiting for a command", sandbox, errs.ErrNotFound, text, "sandbox_start")
}
