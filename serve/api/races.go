package api

import (
	"context"
	"errors"
	"net/http"
	"os"

	"github.com/danielgtaylor/huma/v2"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve"
	"github.com/snapfs/snapfs/serve/problem"
	"github.com/snapfs/snapfs/serve/token"
	"github.com/snapfs/snapfs/workflow/race"
)

// A RaceRequest is a client's request to try several commands for one purpose, each in a sandbox of its own,
// and to choose the best.
type RaceRequest struct {
	Sandbox  NewSandbox `json:"sandbox,omitempty" doc:"what each attempt's sandbox is like; the name is the beginning of their names"`
	Attempts []string   `json:"attempts" minItems:"1" maxItems:"64" doc:"a shell command for each attempt"`
	Check    string     `json:"check,omitempty" doc:"a shell command that must succeed after an attempt; its changes are undone"`
	Score    string     `json:"score,omitempty" doc:"a shell command that prints a number for an attempt that passed; the highest wins"`
	Lower    bool       `json:"lower,omitempty" doc:"with score: the lowest wins"`
	First    bool       `json:"first,omitempty" doc:"the first attempt that passes wins, and the others are ended"`
	Keep     bool       `json:"keep_passed,omitempty" doc:"keep the sandboxes of all attempts that passed, not only the winner's"`
	Jobs     int        `json:"jobs,omitempty" minimum:"0" maximum:"64" doc:"how many attempts run at once; by default all"`
	Timeout  string     `json:"timeout,omitempty" example:"10m" doc:"end an attempt, with its check and score, after this time"`
}

// A RaceAttempt describes one attempt of a race, which tries several commands, each in a sandbox of its own:
// its state while it runs, or its result.
type RaceAttempt struct {
	Attempt  int      `json:"attempt" doc:"counts from 1"`
	Sandbox  string   `json:"sandbox,omitempty" doc:"its sandbox while the race goes on; at the end only if it stays"`
	State    string   `json:"state" enum:"waiting,running,checking,scoring,passed,failed,timed out,stopped,broken"`
	Why      string   `json:"why,omitempty" doc:"explains the state"`
	Exit     *int     `json:"exit,omitempty" doc:"the exit status of its command"`
	Checked  *int     `json:"checked,omitempty" doc:"the exit status of the check"`
	Score    *float64 `json:"score,omitempty"`
	Seconds  float64  `json:"seconds" doc:"of command, check and score together"`
	Paths    *int     `json:"paths,omitempty" doc:"how many paths of the workspace it changed"`
	Added    *int     `json:"added_lines,omitempty" doc:"how many lines of text it added to these; missing where it changed a file that the server may not read"`
	Deleted  *int     `json:"deleted_lines,omitempty" doc:"how many lines of text it deleted"`
	Output   string   `json:"output,omitempty" doc:"at the end: the last 4 KiB of its output"`
	CheckOut string   `json:"check_output,omitempty" doc:"at the end: the last 4 KiB of the output of check and score"`
}

// A RaceResult is the reply to a [RaceRequest], which tries several commands in sandboxes of their own: the
// winner, and how each attempt ended.
type RaceResult struct {
	Winner    int           `json:"winner" doc:"the number of the first attempt that passed or of the one with the best score; 0 without first and score, or if none passed"`
	Sandbox   string        `json:"sandbox,omitempty" doc:"the winner's sandbox, to promote"`
	Attempts  []RaceAttempt `json:"attempts" nullable:"false"`
	Identical [][]int       `json:"identical" nullable:"false" doc:"groups of attempts with the same result"`
}

// A RaceEvent is one event that the API streams about a race, which tries several commands, each in a sandbox
// of its own: a new state of an attempt, or the result.
type RaceEvent struct {
	Type    string           `json:"type" enum:"attempt,result,error"`
	Attempt *RaceAttempt     `json:"attempt,omitempty" doc:"of attempt, whenever its state changes"`
	Result  *RaceResult      `json:"result,omitempty" doc:"of result, the last event"`
	Error   *problem.Problem `json:"error,omitempty" doc:"of error: why there is no result"`
}

type raceInput struct {
	Accept string `header:"Accept"`
	Body   RaceRequest
}

// maxAttempts is the largest number of commands that a client may try in one race, each in a sandbox of its
// own. raceEvents is how many changes of their states wait for a slow client; further ones are left out.
const (
	maxAttempts = 64
	raceEvents  = maxAttempts * 8
)

func (a *API) addRaces() {
	add(a, route{
		scope: token.Run, method: http.MethodPost, path: "/v1/races", id: "race", summary: "Run several attempts at once and choose the best", stream: true,
		detail: "Each attempt has a sandbox of its own, all made from one state of the real environment. Answers when all have ended. Where Accept prefers a " +
			"stream, it answers at once: an event attempt whenever one changes its state, and at the end result or error. The sandbox of the winner stays, to be " +
			"promoted by its own route, or those of all attempts that passed where nothing chooses one or keep_passed is set. All others are removed: all of them, " +
			"if the caller goes.",
		edit: func(op *huma.Operation) {
			op.Responses = map[string]*huma.Response{"200": {Description: "the result, or a stream of events", Content: map[string]*huma.MediaType{
				jsonType:   {Schema: a.schemaOf(RaceResult{})},
				ndjsonType: {Schema: &huma.Schema{Type: "string", Description: "a RaceEvent in each line"}},
				sseType:    {Schema: &huma.Schema{Type: "string"}},
			}}}
			a.schemaOf(RaceEvent{})
		},
	}, a.race)
}

func (a *API) race(ctx context.Context, in *raceInput) (*huma.StreamResponse, error) {
	req, err := a.raceRequest(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	e, err := a.o.Open(ctx)
	if err != nil {
		return nil, err
	}
	kind := accepts(in.Accept, jsonType, ndjsonType, sseType)
	if kind == jsonType {
		result, err := runRace(ctx, e, req, in.Body.Keep)
		if err != nil {
			return nil, err
		}
		return stream(kind, func(w *writer) { writeJSON(w, result) }), nil
	}
	return stream(kind, func(w *writer) { streamRace(ctx, e, req, in.Body.Keep, eventWriter{w, kind == sseType}) }), nil
}

// raceRequest converts a client's request for a race, which tries several commands in sandboxes of their own,
// into the form that package race takes. Errors: ErrInvalid.
func (a *API) raceRequest(ctx context.Context, q RaceRequest) (race.Request, error) {
	const op = "racing"
	switch {
	case q.First && q.Score != "", q.Lower && q.Score == "":
		return race.Request{}, errs.New(op, "", errs.ErrInvalid, "first excludes score, and lower requires score")
	case len(q.Attempts) > maxAttempts:
		return race.Request{}, errs.New(op, "", errs.ErrInvalid, "a race has at most 64 attempts")
	}
	limit, err := timeoutOf("", q.Timeout)
	if err != nil {
		return race.Request{}, err
	}
	req := race.Request{First: q.First, Lower: q.Lower, Jobs: q.Jobs, Timeout: limit}
	if req.Request, err = a.request(ctx, q.Sandbox); err != nil {
		return req, err
	}
	env := hostfs.Environ(os.Environ(), req.Policy.Env)
	script := func(text string) (engine.Command, error) {
		c, err := CommandLine{Command: text}.in(req.Workspace, env)
		return c, errs.With(op, "", err)
	}
	for _, text := range q.Attempts {
		c, err := script(text)
		if err != nil {
			return req, err
		}
		req.Attempts = append(req.Attempts, c)
	}
	for _, s := range []struct {
		text string
		to   **engine.Command
	}{{q.Check, &req.Check}, {q.Score, &req.Score}} {
		if s.text != "" {
			c, err := script(s.text)
			if err != nil {
				return req, err
			}
			*s.to = &c
		}
	}
	return req, nil
}

// runRace runs a race, which tries several commands in sandboxes of their own, to its end. It makes permanent
// the sandbox of the winner, or those of all attempts that passed without a winner or with keepPassed, and
// removes the others.
func runRace(ctx context.Context, e *engine.Engine, req race.Request, keepPassed bool) (RaceResult, error) {
	contest, err := race.New(e).Race(ctx, req)
	if err != nil {
		return RaceResult{}, err
	}
	after := context.WithoutCancel(ctx) // the race is over: keep or remove each sandbox
	stay := map[int]string{}
	keep := contest.Passed()
	if contest.Winner != 0 && !keepPassed {
		keep = []int{contest.Winner}
	}
	err = ctx.Err() // nobody would know of them
	for _, number := range keep {
		if err == nil {
			stay[number], err = contest.Keep(after, number)
		}
	}
	r := RaceResult{Winner: contest.Winner, Sandbox: stay[contest.Winner], Attempts: []RaceAttempt{}, Identical: contest.Compared.Identical}
	if r.Identical == nil {
		r.Identical = [][]int{}
	}
	for _, one := range contest.Attempts {
		at := attemptOf(one)
		at.Sandbox, at.Output, at.CheckOut = stay[one.Number], serve.Tail(one.Output, maxTail), serve.Tail(one.CheckOutput, maxTail)
		r.Attempts = append(r.Attempts, at)
	}
	return r, errors.Join(err, contest.Close(after))
}

func attemptOf(one race.Attempt) RaceAttempt {
	at := RaceAttempt{Attempt: one.Number, Sandbox: one.Sandbox, State: string(one.State), Why: one.Why, Score: one.Score, Seconds: one.Took.Seconds()}
	if one.Ended != nil {
		at.Exit = &one.Ended.Status
	}
	if one.Checked != nil {
		at.Checked = &one.Checked.Status
	}
	if one.Size != nil {
		at.Paths = &one.Size.Paths
		if !one.Size.Unread {
			at.Added, at.Deleted = &one.Size.Added, &one.Size.Deleted
		}
	}
	return at
}

// streamRace runs a race, which tries several commands in sandboxes of their own. It sends the client an
// event for each change of an attempt's state, and the result. With keepPassed all passed attempts' sandboxes
// stay.
func streamRace(ctx context.Context, e *engine.Engine, req race.Request, keepPassed bool, out eventWriter) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	_ = out.w.flush() // the headers, before the first event
	go beats(ctx, out, stop)
	feed := make(chan RaceAttempt, raceEvents)
	req.Progress = func(one race.Attempt) {
		select {
		case feed <- attemptOf(one):
		default: // a slow caller misses this state and holds up no attempt
		}
	}
	last := RaceEvent{Type: "result"}
	go func() {
		defer close(feed)
		result, err := runRace(ctx, e, req, keepPassed)
		if last.Result = &result; err != nil {
			last = RaceEvent{Type: "error", Error: problem.Of(err)}
		}
	}()
	for at := range feed {
		if err := out.send("", "attempt", RaceEvent{Type: "attempt", Attempt: &at}); err != nil {
			stop(errGone)
		}
	}
	_ = out.send("", last.Type, last) // an error means that the caller has gone
}

// maxTail is how many bytes from the end of the output of each command of a race the result holds, 4 KiB.
const maxTail = 4 << 10
