package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/prove"
	"github.com/snapfs/snapfs/serve/problem"
	"github.com/snapfs/snapfs/serve/token"
	"github.com/snapfs/snapfs/workflow/selftest"
)

type proveInput struct {
	Accept string `header:"Accept"`
	Body   *struct {
		Sandbox NewSandbox `json:"sandbox,omitempty" doc:"what the tested sandboxes are like"`
		Only    []string   `json:"only,omitempty" maxItems:"100" doc:"only these probes"`
	} `required:"false"`
}

// A Proof is a reply of the HTTP API: the results of the self-tests, which try to break out of a sandbox from
// inside and to exceed its limits.
type Proof struct {
	Held    int          `json:"held" doc:"how many of the walls and limits held"`
	Untried int          `json:"untried" doc:"how many could not be tried here"`
	Reports []ProbeEvent `json:"reports" nullable:"false"`
}

// A ProbeEvent is, in a stream to a client, the result of one self-test, which tries to break out of a
// sandbox, or the end of the stream.
type ProbeEvent struct {
	Type     string           `json:"type" enum:"probe,end,error"`
	Probe    string           `json:"probe,omitempty"`
	Tried    string           `json:"tried,omitempty" doc:"what the probe attempted from inside"`
	Happened string           `json:"happened,omitempty"`
	Held     bool             `json:"held,omitempty" doc:"whether the isolation held"`
	Untried  bool             `json:"untried,omitempty" doc:"whether it could not be tried"`
	Error    *problem.Problem `json:"error,omitempty" doc:"of error: why there are no more"`
}

func probeOf(r prove.Report) ProbeEvent {
	return ProbeEvent{Type: "probe", Probe: r.Probe, Tried: r.Tried, Happened: r.Happened, Held: r.Held, Untried: !r.Held && !r.WasTried()}
}

// maxProbes is how many results of self-tests, which try to break out of a sandbox, wait for a slow client.
// There are fewer tests than that.
const maxProbes = 1000

func (a *API) addProve() {
	add(a, route{
		scope: token.Run, method: http.MethodPost, path: "/v1/prove", id: "prove", summary: "Test the isolation of sandboxes from inside", stream: true,
		detail: "Starts sandboxes as described and tries to cross each wall and to exceed each limit, which takes about seven seconds; nothing is left of them. Where " +
			"Accept prefers a stream, it sends each report at once, and at the end an event end or error.",
		edit: func(op *huma.Operation) {
			op.Responses = map[string]*huma.Response{"200": {Description: "the result, or a stream of events", Content: map[string]*huma.MediaType{
				jsonType:   {Schema: a.schemaOf(Proof{})},
				ndjsonType: {Schema: &huma.Schema{Type: "string", Description: "a ProbeEvent in each line"}},
				sseType:    {Schema: &huma.Schema{Type: "string"}},
			}}}
		},
	}, a.prove)
}

func (a *API) prove(ctx context.Context, in *proveInput) (*huma.StreamResponse, error) {
	var want NewSandbox
	var only []string
	if in.Body != nil {
		want, only = in.Body.Sandbox, in.Body.Only
	}
	req, err := a.request(ctx, want)
	if err != nil {
		return nil, err
	}
	e, err := a.o.Open(ctx)
	if err != nil {
		return nil, err
	}
	kind := accepts(in.Accept, jsonType, ndjsonType, sseType)
	if kind == jsonType {
		r := Proof{Reports: []ProbeEvent{}}
		err := a.tryWalls(ctx, e, req, only, func(p ProbeEvent) {
			r.Reports = append(r.Reports, p)
			if p.Held {
				r.Held++
			} else if p.Untried {
				r.Untried++
			}
		})
		if err != nil {
			return nil, err
		}
		return stream(kind, func(w *writer) { writeJSON(w, r) }), nil
	}
	return stream(kind, func(w *writer) {
		out := eventWriter{w, kind == sseType}
		ctx, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		_ = out.w.flush() // the headers, before the first event
		go beats(ctx, out, stop)
		feed := make(chan ProbeEvent, maxProbes)
		go func() {
			defer close(feed)
			last := ProbeEvent{Type: "end"}
			if err := a.tryWalls(ctx, e, req, only, func(p ProbeEvent) { feed <- p }); err != nil {
				last = ProbeEvent{Type: "error", Error: problem.Of(err)}
			}
			feed <- last
		}()
		for p := range feed {
			if out.send("", p.Type, p) != nil {
				stop(errGone)
			}
		}
	}), nil
}

func (a *API) tryWalls(ctx context.Context, e *engine.Engine, req hostfs.Request, only []string, each func(ProbeEvent)) error {
	return selftest.New(e).Prove(ctx, req, []string{a.o.Program, "probe"}, only, func(r prove.Report) { each(probeOf(r)) })
}
