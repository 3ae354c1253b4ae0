package api

import (
	"context"
	"net/http"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/token"
)

// A Limits is a reply of the HTTP API: the resources, such as memory, that a sandbox may use, and those that
// it uses now.
type Limits struct {
	Limits map[string]string `json:"limits" nullable:"false" doc:"the limits that are set, by the names of the flags of snapfs new"`
	Usage  *supervise.Usage  `json:"usage,omitempty" doc:"what it uses now; missing while nothing runs in it. Durations are nanoseconds"`
}

type limitsOutput struct{ Body Limits }

type limitsInput struct {
	Named
	Body struct {
		Limits map[string]string `json:"limits" minProperties:"1" example:"{\"memory\": \"4G\", \"pids\": \"none\"}" doc:"the limits to change; none removes one"`
	}
}

func (a *API) addLimits() {
	const path = "/v1/sandboxes/{name}/limits"
	add(a, route{scope: token.Read, method: http.MethodGet, path: path, id: "get-limits", summary: "Return the limits and the present use of a sandbox"},
		func(ctx context.Context, in *Named) (*limitsOutput, error) {
			e, rec, err := a.sandbox(ctx, in.Name)
			if err != nil {
				return nil, err
			}
			return limitsOf(ctx, e, in.Name, rec.Policy.Limits)
		})
	add(a, route{
		scope: token.Run, method: http.MethodPatch, path: path, id: "set-limits", summary: "Change limits of a sandbox",
		detail: "Also for its running processes. After an error none has changed.",
	}, a.setLimits)
}

func (a *API) setLimits(ctx context.Context, in *limitsInput) (*limitsOutput, error) {
	e, _, err := a.sandbox(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	now, err := e.Supervise.SetLimits(ctx, in.Name, func(l *engine.Limits) error { return changeLimits(l, in.Name, in.Body.Limits) })
	if err != nil {
		return nil, err
	}
	return limitsOf(ctx, e, in.Name, now)
}

// changeLimits sets resource limits of a sandbox in l from texts by name, such as "memory": "1G". sandbox is
// named in errors. Errors: ErrInvalid.
func changeLimits(l *catalog.Limits, sandbox string, values map[string]string) error {
	for name, text := range values {
		known, err := l.SetField(name, text)
		if !known {
			return errs.New("setting limits", sandbox, errs.ErrInvalid, "no limit has the name "+errs.Quoted(name))
		}
		if err != nil {
			return errs.New("setting limits", sandbox, errs.ErrInvalid, err.Error())
		}
	}
	return nil
}

func limitsOf(ctx context.Context, e *engine.Engine, name string, l catalog.Limits) (*limitsOutput, error) {
	used, err := e.Supervise.UsageOf(ctx, name)
	if err != nil {
		return nil, err
	}
	return &limitsOutput{Limits{l.Texts(), used}}, nil
}
