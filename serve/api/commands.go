package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/units"
	"github.com/snapfs/snapfs/serve/token"
)

// A Command describes a background command of a sandbox, running or ended, in a reply of the HTTP API.
type Command struct {
	ID      int        `json:"id" doc:"counts the background commands of the sandbox, from 1"`
	Args    []string   `json:"args" nullable:"false"`
	Began   time.Time  `json:"began"`
	Ended   *time.Time `json:"ended,omitempty"`
	Running bool       `json:"running"`
	Exit    *int       `json:"exit,omitempty" doc:"missing while it runs, or if it was killed with the sandbox"`
	State   string     `json:"state" doc:"how it is or ended, in words"`
}

func commandOf(d supervise.Detached) Command {
	c := Command{ID: d.ID, Args: append([]string{}, d.Args...), Began: d.Began, Running: d.Running, Exit: d.Status, State: d.Describe()}
	if !d.Ended.IsZero() {
		c.Ended = &d.Ended
	}
	return c
}

type startInput struct {
	Named
	Body CommandLine
}

type commandOutput struct{ Body Command }

type commandsOutput struct {
	Body struct {
		Commands []Command `json:"commands" nullable:"false" doc:"the last 20, oldest first"`
	}
}

type commandInput struct {
	Named
	ID   int    `path:"id" minimum:"1" doc:"the command's number"`
	Wait string `query:"wait" example:"30s" doc:"return when the command has ended, or after this time, at most 1h"`
}

type outputInput struct {
	Named
	ID     int  `path:"id" minimum:"1" doc:"the command's number"`
	Follow bool `query:"follow" doc:"go on until the command ends or the caller goes"`
}

// maxWait is the longest wait for a background command's end that a request may ask for; more is invalid.
const maxWait = time.Hour

func (a *API) addCommands() {
	const path = "/v1/sandboxes/{name}/commands"
	add(a, route{
		scope: token.Run, method: http.MethodPost, path: path, id: "start-command", summary: "Start a command in the background", status: http.StatusCreated,
		detail: "It goes on until it ends by itself, its sandbox is stopped or removed, or a limit ends it: also when the server ends.",
	}, a.startCommand)
	add(a, route{scope: token.Read, method: http.MethodGet, path: path, id: "list-commands", summary: "List background commands"},
		func(ctx context.Context, in *Named) (*commandsOutput, error) {
			e, _, err := a.sandbox(ctx, in.Name)
			if err != nil {
				return nil, err
			}
			all, err := e.Supervise.DetachedOf(in.Name)
			out := &commandsOutput{}
			out.Body.Commands = []Command{}
			for _, d := range all {
				out.Body.Commands = append(out.Body.Commands, commandOf(d))
			}
			return out, err
		})
	add(a, route{scope: token.Read, method: http.MethodGet, path: path + "/{id}", id: "get-command", summary: "Describe a background command, or wait for it", stream: true}, a.getCommand)
	add(a, route{
		scope: token.Read, method: http.MethodGet, path: path + "/{id}/output", id: "command-output", summary: "Return the output of a background command", stream: true,
		detail: "Both streams together, as they came. Of a long output, the last 8 to 16 MiB are stored.",
		edit: func(op *huma.Operation) {
			op.Responses = map[string]*huma.Response{"200": {Description: "the output", Content: map[string]*huma.MediaType{
				"application/octet-stream": {Schema: &huma.Schema{Type: "string", Format: "binary"}},
			}}}
		},
	}, a.commandOutput)
}

func (a *API) startCommand(ctx context.Context, in *startInput) (*commandOutput, error) {
	e, rec, err := a.sandbox(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	c, err := in.Body.command(rec)
	if err != nil {
		return nil, err
	}
	o, err := in.Body.options()
	if err != nil {
		return nil, err
	}
	o.EndAtTTL = false // it has no caller who would wait in vain
	id, err := e.Supervise.Detach(ctx, in.Name, c, o)
	if err != nil {
		return nil, err
	}
	d, err := background(e, in.Name, id)
	return &commandOutput{commandOf(d)}, err
}

// background returns the sandbox's background command with the number id, which the request's URL names.
// Errors: ErrNotFound.
func background(e *engine.Engine, sandbox string, id int) (supervise.Detached, error) {
	all, err := e.Supervise.DetachedOf(sandbox)
	if err != nil {
		return supervise.Detached{}, err
	}
	for _, d := range all {
		if d.ID == id {
			return d, nil
		}
	}
	return supervise.Detached{}, errs.New("looking for a command", sandbox, errs.ErrNotFound, fmt.Sprintf("no background command has the number %d", id))
}

func (a *API) getCommand(ctx context.Context, in *commandInput) (*commandOutput, error) {
	e, _, err := a.sandbox(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	d, err := background(e, in.Name, in.ID)
	if err != nil {
		return nil, err
	}
	if in.Wait != "" {
		most, err := units.ParseDuration(in.Wait)
		if err != nil || most < 0 || most > maxWait {
			return nil, errs.New("waiting for a command", in.Name, errs.ErrInvalid, "wait is no duration of at most 1h")
		}
		waiting, done := context.WithTimeout(ctx, most)
		defer done()
		if err := e.Supervise.CopyOutput(waiting, io.Discard, in.Name, in.ID, true); err != nil && waiting.Err() == nil {
			return nil, err
		}
		if d, err = background(e, in.Name, in.ID); err != nil {
			return nil, err
		}
	}
	return &commandOutput{commandOf(d)}, ctx.Err()
}

func (a *API) commandOutput(ctx context.Context, in *outputInput) (*huma.StreamResponse, error) {
	e, _, err := a.sandbox(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	if _, err := background(e, in.Name, in.ID); err != nil {
		return nil, err
	}
	return stream("application/octet-stream", func(w *writer) {
		var to io.Writer = w
		if in.Follow {
			to = flushing{w}
		}
		_ = e.Supervise.CopyOutput(ctx, to, in.Name, in.ID, in.Follow) // an error ends the response
	}), nil
}

// A flushing is an io.Writer of a response's body that sends each part to the client at once.
type flushing struct{ w *writer }

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err == nil {
		err = f.w.flush()
	}
	return n, err
}
