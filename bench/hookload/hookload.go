//go:build linux

// Package hookload runs `snapfs hook` as a coding agent does, and measures each call as a whole process. Read
// [Session.Measure].
package hookload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/engine/keypoint"
	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/internal/run"
)

// A Session is the session of a coding agent whose hooks [Session.Measure] runs.
type Session struct {
	// Program is the path of snapfs, State the state directory, Backend the backend of the session's sandbox, and Dir
	// the workspace.
	Program, State, Backend, Dir string
	// Env is the environment of each hook.
	Env []string
}

// changed is the number of files that the measured calls of a tool change. Before each checkpoint one of them changes,
// in turn.
const changed = 100

// Measure makes a clone of the workspace for the session, and returns the times of its hooks around calls of a tool,
// rounds of them, and for comparison the times of starts of snapfs that do nothing. It then ends the session.
func (s Session) Measure(ctx context.Context, rounds int) (samples []timing.Sample, err error) {
	text, err := s.send(ctx, "WorktreeCreate", s.Dir, `"name":"wt"`)
	if err != nil {
		return nil, err
	}
	view := strings.TrimSpace(text)
	defer func() {
		_, e := s.send(context.WithoutCancel(ctx), "SessionEnd", s.Dir, `"reason":"exit"`)
		err = errors.Join(err, e)
	}()
	n := 0
	call := func() string {
		return fmt.Sprintf(`"tool_name":"Bash","tool_use_id":"call-%d","tool_input":{"command":"true"}`, n)
	}
	list := []timing.Subject{
		{Name: "snapfs version, for comparison", Do: timing.Timing(func(ctx context.Context) error {
			return run.Run(ctx, run.Program{Name: s.Program, Args: []string{"version"}, Env: s.Env, Dir: s.Dir})
		})},
		// A reply of the model lies between two calls, and the last checkpoint is taken meanwhile.
		{Name: "snapfs hook PreToolUse", Before: func(ctx context.Context) error { return s.untilTaken(ctx, filepath.Base(view)) }, Do: timing.Timing(func(ctx context.Context) error {
			_, err := s.send(ctx, "PreToolUse", view, call())
			return err
		})},
		{
			Name: "snapfs hook PostToolBatch, with a checkpoint of one more changed file",
			Before: func(context.Context) error {
				n++
				return os.WriteFile(filepath.Join(view, fmt.Sprintf("call-%d", n%changed)), fmt.Appendf(nil, "call %d\n", n), 0o644)
			},
			Do: timing.Timing(func(ctx context.Context) error {
				_, err := s.send(ctx, "PostToolBatch", view, `"tool_calls":[{`+call()+`}]`)
				return err
			}),
		},
	}
	used := make([]time.Duration, len(list))
	for i := range list {
		do := list[i].Do
		list[i].Do = func(ctx context.Context) (time.Duration, error) {
			before := timing.Processor(unix.RUSAGE_CHILDREN)
			took, err := do(ctx)
			used[i] += timing.Processor(unix.RUSAGE_CHILDREN) - before
			return took, err
		}
	}
	samples, err = timing.Interleave(ctx, timing.Plan{Rounds: rounds, Budget: time.Minute}, list...)
	for i := range samples {
		samples[i].Name += fmt.Sprintf(" (%.1f ms of processor time)", used[i].Seconds()*1e3/float64(max(1, len(samples[i].Took))))
	}
	return samples, err
}

// untilTaken waits until the checkpoint that a hook has promised has been taken.
func (s Session) untilTaken(ctx context.Context, sandbox string) error {
	return poll.Until(ctx, time.Millisecond, time.Millisecond, func() (bool, error) { return !keypoint.IsPromised(s.State, sandbox), nil })
}

// send runs the hook for an event of a session in the directory cwd and returns its reply. more are further JSON fields
// of the event. A text on standard error is an error, since a hook that fails exits with status 0.
func (s Session) send(ctx context.Context, event, cwd, more string) (string, error) {
	in := fmt.Sprintf(`{"session_id":"bench","hook_event_name":%q,"cwd":%q,%s}`, event, cwd, more)
	var out, complaint bytes.Buffer
	err := run.Run(ctx, run.Program{
		Name: s.Program, Args: []string{"hook", "--backend", s.Backend, "-C", s.Dir, event}, Env: s.Env, Dir: s.Dir,
		Stdin: strings.NewReader(in), Stdout: &out, Stderr: &complaint,
	})
	if err == nil && complaint.Len() > 0 {
		err = errors.New(strings.TrimSpace(complaint.String()))
	}
	return out.String(), err
}
