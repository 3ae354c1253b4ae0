package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// A hookInput is the request of a webhook, which submits, approves or rejects a job (a command that a worker
// runs in a sandbox later). Another program, which has the webhook's secret, sends it with a signature.
type hookInput struct {
	Trigger   int    `path:"trigger" minimum:"1" doc:"the trigger's number"`
	Signature string `header:"X-Snapfs-Signature" doc:"t=SECONDS,v1=HEX: the HMAC-SHA256, with the secret, of SECONDS, a dot and the body"`
	RawBody   []byte
}

func (a *API) addHook() {
	body := &huma.RequestBody{}
	add(a, route{
		edit:   func(op *huma.Operation) { op.RequestBody = body },
		method: http.MethodPost, path: "/v1/hooks/{trigger}", id: "hook", summary: "Submit, approve or reject a job by a signed request",
		detail: "For programs that have the secret of a webhook (snapfs job submit --webhook) and no token. The body is empty, or JSON with action " +
			"(submit, approve or reject), job and plan. A request is valid for five minutes, and one that is repeated submits no second job.",
	}, a.hook)
	body.Required = false // package huma makes a body of bytes required
}

func (a *API) hook(ctx context.Context, in *hookInput) (*jobOutput, error) {
	s, err := a.jobs(ctx)
	if err != nil {
		return nil, err
	}
	j, err := s.Hook(ctx, in.Trigger, in.Signature, in.RawBody)
	if err != nil {
		return nil, err
	}
	return &jobOutput{jobOf(j)}, nil
}
