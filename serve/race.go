package serve

import (
	"context"
	"errors"
	"os"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/race"
)

// mostAttempts is the largest number of commands that a coding agent may try in one race, each in a sandbox
// of its own; a request with more is invalid.
const mostAttempts = 16

// A RaceRequest is a coding agent's request to try several commands for one purpose, each in a sandbox of its
// own, and to choose the best.
type RaceRequest struct {
	Commands []string `json:"commands" jsonschema:"a shell command for each attempt, from 1 to 16"`
	Check    string   `json:"check,omitempty" jsonschema:"a shell command that must succeed after an attempt; snapfs undoes its changes"`
	Score    string   `json:"score,omitempty" jsonschema:"a shell command that prints a number for an attempt that passed; the highest wins"`
	Lower    bool     `json:"lower,omitempty" jsonschema:"with score: the lowest wins"`
	First    bool     `json:"first,omitempty" jsonschema:"the first attempt that passes wins, and the others are ended"`
	Name     string   `json:"name,omitempty" jsonschema:"the beginning of the sandboxes' names"`
	Jobs     int      `json:"jobs,omitempty" jsonschema:"how many attempts run at once; by default all"`
	TimeoutS int      `json:"timeout_s,omitempty" jsonschema:"end an attempt after this many seconds; by default 50, at most 1800"`
	Less
}

// A Race is the reply to a [RaceRequest], which tries several commands in sandboxes of their own: the sandbox
// of the winner, and how each attempt ended.
type Race struct {
	Winner   string    `json:"winner,omitempty" jsonschema:"the sandbox of the winner, for sandbox_diff and sandbox_promote; none without first or score, or if none passed"`
	Attempts []Attempt `json:"attempts"`
}

// An Attempt is the result of one attempt of a race (several commands for one purpose, each in a sandbox of
// its own), in a [Race].
type Attempt struct {
	Attempt int      `json:"attempt" jsonschema:"its number, from 1"`
	Sandbox string   `json:"sandbox,omitempty" jsonschema:"its sandbox, if that is still there: the winner's, and without first and score that of each attempt that passed"`
	State   string   `json:"state" jsonschema:"passed, failed, timed out, stopped or broken"`
	Why     string   `json:"why,omitempty"`
	Exit    *int     `json:"exit,omitempty"`
	Score   *float64 `json:"score,omitempty"`
	TookMS  int64    `json:"took_ms"`
	Paths   int      `json:"paths" jsonschema:"how many paths of the workspace it changed"`
	Output  string   `json:"output" jsonschema:"the end of its output"`
	Check   string   `json:"check,omitempty" jsonschema:"the end of the output of check and score"`
}

// Race runs several attempts (commands for one purpose), each in a sandbox of its own, all made from one
// state of the real environment. It promotes nothing. The winner's sandbox stays, or, if no winner is chosen,
// those of all attempts that passed; all others are removed. Errors: those of [race.Coordinator.Race]; after
// an error no sandbox is left.
func (s *Service) Race(ctx context.Context, q RaceRequest) (Race, error) {
	const op = "racing"
	switch {
	case len(q.Commands) == 0 || len(q.Commands) > mostAttempts:
		return Race{}, errs.New(op, "", errs.ErrInvalid, "commands must be from 1 to 16")
	case q.First && q.Score != "", q.Lower && q.Score == "":
		return Race{}, errs.New(op, "", errs.ErrInvalid, "first excludes score, and lower requires score")
	case q.Jobs < 0:
		return Race{}, errs.New(op, "", errs.ErrInvalid, "jobs must not be negative")
	}
	limit, err := timeout(q.TimeoutS, usualTimeout)
	if err != nil {
		return Race{}, err
	}
	req, err := s.Rules.request(q.Name, q.Less)
	if err != nil {
		return Race{}, err
	}
	e, err := s.open(ctx)
	if err != nil {
		return Race{}, err
	}
	done, err := s.reserve(ctx, e, len(q.Commands))
	if err != nil {
		return Race{}, err
	}
	defer done()
	in := race.Request{Request: req, First: q.First, Lower: q.Lower, Jobs: q.Jobs, Timeout: limit}
	for _, script := range q.Commands {
		in.Attempts = append(in.Attempts, s.script(script))
	}
	if q.Check != "" {
		c := s.script(q.Check)
		in.Check = &c
	}
	if q.Score != "" {
		c := s.script(q.Score)
		in.Score = &c
	}
	contest, err := race.New(e).Race(ctx, in)
	if err != nil {
		return Race{}, err
	}
	after := context.WithoutCancel(ctx) // the race is over: keep or remove each sandbox
	result, err := s.settle(after, e, contest)
	return result, errors.Join(err, contest.Close(after))
}

func (s *Service) script(text string) engine.Command {
	return engine.Command{Args: inShell(text), Env: s.environment(), Dir: s.Rules.Workspace}
}

// settle ends a race of several commands in sandboxes of their own. It makes permanent the sandbox of the
// winner, or without a winner those of all attempts that passed, marks them as made by an agent, and returns
// the results. After an error it has removed these sandboxes.
func (s *Service) settle(ctx context.Context, e *engine.Engine, contest *race.Race) (Race, error) {
	stay := map[int]string{}
	keep := contest.Passed()
	if contest.Winner != 0 {
		keep = []int{contest.Winner}
	}
	for _, number := range keep {
		name, err := contest.Keep(ctx, number)
		if err == nil {
			stay[number] = name
			err = setMark(e, name)
		}
		if err != nil {
			for _, kept := range stay {
				err = errors.Join(err, e.Remove(ctx, kept))
			}
			return Race{}, err
		}
	}
	r := Race{Winner: stay[contest.Winner], Attempts: []Attempt{}}
	for _, a := range contest.Attempts {
		one := Attempt{
			Attempt: a.Number, Sandbox: stay[a.Number], State: string(a.State), Why: a.Why, Score: a.Score,
			TookMS: a.Took.Milliseconds(),
			Output: endOf(a.Output), Check: endOf(a.CheckOutput),
		}
		if a.Ended != nil {
			one.Exit = &a.Ended.Status
		}
		if a.Size != nil {
			one.Paths = a.Size.Paths
		}
		r.Attempts = append(r.Attempts, one)
	}
	return r, nil
}

// attemptTail is how many bytes from the end of the output of each command of a race the reply to a coding
// agent holds at most. The output before them is left out.
const attemptTail = 600

// endOf returns the end of the output of a race's command, stored in the file path, safe on a terminal, or ""
// if it cannot be read.
func endOf(path string) string { return tame(Tail(path, attemptTail)) }

// Tail returns the last most bytes of the file path as text, such as the end of a command's output, or "" if
// it cannot be read.
func Tail(path string, most int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	buf := make([]byte, most)
	n, _ := f.ReadAt(buf, max(0, info.Size()-most)) // it reads to the end
	return string(buf[:n])
}
