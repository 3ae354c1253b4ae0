package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/files"
	"github.com/snapfs/snapfs/serve/metrics"
	"github.com/snapfs/snapfs/serve/problem"
	"github.com/snapfs/snapfs/serve/replay"
	"github.com/snapfs/snapfs/serve/token"
)

// Options configure the HTTP API that [New] returns: the state directory, the defaults of new sandboxes, and
// the function that opens the engine.
type Options struct {
	// State is the state directory.
	State string
	// Open opens the engine of State; each request calls it.
	Open func(ctx context.Context) (*engine.Engine, error)
	// Program is the path of snapfs, which tests sandboxes from inside.
	Program string
	// Files is the program that reads and writes the files of sandboxes.
	Files *files.Helper
	// Workspace is the workspace of a new sandbox where a request names none; "" requires one.
	Workspace string
	// Backend is the driver of a new sandbox where a request names none; "" chooses.
	Backend string
	// Version is that of this program.
	Version string
	// Front is put before all routes, after the check of the header Host; nil for none.
	Front func(http.Handler) http.Handler
	// Others share the address: each answers the requests that it claims, with checks of its own.
	Others []Other
}

// An Other is another handler at the same address as the API, such as that of E2B's protocol. Claims reports
// whether a request is meant for it and not for the API.
type Other interface {
	http.Handler
	Claims(r *http.Request) bool
}

// Mount adds the handler do for a URL path, for clients whose token has the scope (right); by has, do checks
// whether the client also has another scope. It must be called before Serve.
func (a *API) Mount(path string, scope token.Scope, do func(w http.ResponseWriter, r *http.Request, has func(token.Scope) bool)) {
	a.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if err := a.authorize(r.Context(), r.Header.Get("Authorization"), scope); err != nil {
			problem.Of(err).Answer(w)
			return
		}
		if !a.streams.take() {
			problem.Refused(http.StatusServiceUnavailable, errs.ErrBusy, "this server has too many requests at once").Answer(w)
			return
		}
		defer a.streams.release()
		ctx, stop := context.WithCancel(r.Context())
		defer stop()
		if header := r.Header.Get("Authorization"); header != "" {
			go a.endWithToken(ctx, stop, header, scope)
		}
		do(w, r.WithContext(ctx), func(other token.Scope) bool {
			return a.authorize(r.Context(), r.Header.Get("Authorization"), other) == nil
		})
	})
}

// An API answers HTTP requests about the sandboxes of a state directory. [New] returns it.
type API struct {
	o       Options
	mux     *http.ServeMux
	huma    huma.API
	tokens  *token.Store
	streams slots // what may last for long
	others  slots // requests of the other handlers
	signed  slots // requests with a body and no token, such as signed webhooks, which anybody can send
	cosigns slots // countersigned records
	calls   slots // everything else
	replays replay.Store
	running running
	metrics *metrics.Metrics
	feed    *events.Feed
	recheck time.Duration // between two looks at the token of a stream
	ping    time.Duration // between two pings of a terminal; 0 for the usual
}

// Bounds of what clients may cause: streams and other requests served at the same time, of which further ones
// are refused, the size of a body and the time to send it, and the time between two checks whether the token
// of a stream is still valid.
const (
	maxStreams = 1024
	maxCalls   = 128
	maxSigned  = 16
	maxBody    = 1 << 20
	bodyTime   = 30 * time.Second
	signedTime = 2 * time.Second // to read the body of a request without a token

	recheckTime = 10 * time.Second
)

// scopeKey is the name under which the OpenAPI document holds, for each route, the scope (right of a token)
// that a client needs.
const scopeKey = "x-snapfs-scope"

// New returns the HTTP API for the sandboxes of the state directory of o, with all routes.
func New(o Options) *API {
	problem.Install()
	a := &API{o: o, mux: http.NewServeMux(), tokens: token.Open(o.State), streams: make(slots, maxStreams), others: make(slots, maxStreams), signed: make(slots, maxSigned), calls: make(slots, maxCalls), cosigns: make(slots, maxCosigns), replays: replay.Store{Streams: []string{ndjsonType}}, recheck: recheckTime, feed: events.NewFeed(o.State)}
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "snapfs", Version: "v1",
			Description: "Sandboxes that are instant copies of this machine: run in them, compare, and promote the result. See docs/serve.md.",
		},
		Components: &huma.Components{
			Schemas:         huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
			SecuritySchemes: map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer", Description: "made by snapfs token new; not needed on the unix socket"}},
		},
	}
	a.huma = humago.New(a.mux, huma.Config{
		OpenAPI: doc, Formats: map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat: "application/json", RejectUnknownQueryParameters: true,
	})
	a.metrics = metrics.New(a.countSandboxes)
	a.huma.UseMiddleware(a.admit)
	a.addAll()
	return a
}

func (a *API) addAll() {
	a.addHealth()
	a.addSandboxes()
	a.addExec()
	a.addRunning()
	a.addTerminal()
	a.addWatch()
	a.addLimits()
	a.addNet()
	a.addPorts()
	a.addProve()
	a.addRaces()
	a.addJobs()
	a.addTriggers()
	a.addProfiles()
	a.addCommands()
	a.addFiles()
	a.addStates()
	a.addChanges()
	a.addEvidence()
	a.addEvents()
	a.addMetrics()
}

// Document returns the OpenAPI document, the description of all routes of the API, as JSON.
func (a *API) Document() ([]byte, error) { return a.huma.OpenAPI().MarshalJSON() }

// A route describes a route of the API: the scope (right of a token) that it needs, its method, path and
// texts for the OpenAPI document.
type route struct {
	scope               token.Scope // "" for everybody
	method, path        string
	id, summary, detail string
	status              int // of success; 0 for 200
	stream              bool
	edit                func(*huma.Operation)
}

// add adds the route r to the API, with its entry in the OpenAPI document; do answers its requests.
func add[I, O any](a *API, r route, do func(context.Context, *I) (*O, error)) {
	op := huma.Operation{
		OperationID: r.id, Method: r.method, Path: r.path, Summary: r.summary, Description: r.detail, DefaultStatus: r.status,
		MaxBodyBytes: maxBody, BodyReadTimeout: bodyTime, Metadata: map[string]any{scopeKey: r},
		Errors: []int{http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity},
	}
	if r.scope != "" {
		op.Errors = append(op.Errors, http.StatusUnauthorized)
		op.Security = []map[string][]string{{"token": {}}}
		op.Extensions = map[string]any{scopeKey: r.scope}
	}
	if r.method == http.MethodPost {
		op.Parameters = append(op.Parameters, &huma.Param{
			Name: replayHeader, In: "header", Description: "a text of the caller's own: a repeated request with it is not carried out again, but gets the first response, for 10 minutes and while the server runs",
			Schema: &huma.Schema{Type: "string", MaxLength: new(maxReplayKey)},
		})
	}
	if r.scope == "" {
		op.BodyReadTimeout = signedTime
	}
	if r.edit != nil {
		r.edit(&op)
	}
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := do(ctx, in)
		if err != nil {
			return nil, problem.Of(err)
		}
		return out, nil
	})
}

// A slots bounds how many requests of one kind the API serves at once. Each request takes a slot and releases
// it at its end.
type slots chan struct{}

// take takes a free slot for a request, by which the number of requests served at once is bounded. It reports
// whether there was one.
func (s slots) take() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s slots) release() { <-s }

// A caller says over which connection a request to the API came, which decides the rights of its sender.
type caller struct {
	// local is set on the unix socket, whose peer was checked.
	local bool
	// server is nil for a handler without a listener.
	server *serving
}

// A serving is one run of [API.Serve], which answers requests until the server ends. By it, sessions of
// terminals, whose connections the HTTP server no longer knows, end with the server.
type serving struct {
	// ending is closed when it ends.
	ending <-chan struct{}
	// terminals are the sessions whose connections the HTTP server knows no more.
	terminals sync.WaitGroup
}

type callerKey struct{}

// A grantKey is the key, in a request's context, of the function that checks whether the sender of the
// request has another scope (right of a token) than that of the route.
type grantKey struct{}

// granted returns an error unless the sender of the request of ctx has a scope (right of a token), in
// addition to that of the route.
func granted(ctx context.Context, scope token.Scope) error {
	check, ok := ctx.Value(grantKey{}).(func(token.Scope) error)
	if !ok {
		return errs.New("checking a token", "", errs.ErrDenied, "nobody has checked the sender")
	}
	return check(scope)
}

// admit checks that the token of a request's sender has the scope (right) that the route needs, and bounds
// the number of requests. Then it calls next, which serves the request.
func (a *API) admit(ctx huma.Context, next func(huma.Context)) {
	r, _ := ctx.Operation().Metadata[scopeKey].(route)
	began, status := time.Now(), 0
	defer func() {
		a.metrics.Observe(ctx.Operation().OperationID, cmp.Or(status, ctx.Status(), http.StatusOK), r.stream, time.Since(began))
	}()
	if err := a.authorize(ctx.Context(), ctx.Header("Authorization"), r.scope); err != nil {
		problem.Of(err).Write(ctx)
		return
	}
	s := a.calls
	switch {
	case r.stream:
		s = a.streams
	case r.scope == "" && r.method == http.MethodPost: // or strangers could take every slot
		s = a.signed
	}
	if !s.take() {
		problem.Refused(http.StatusServiceUnavailable, errs.ErrBusy, "this server has too many requests at once").Write(ctx)
		return
	}
	defer s.release()
	if header := ctx.Header("Authorization"); r.stream && header != "" {
		valid, stop := context.WithCancel(ctx.Context())
		defer stop()
		go a.endWithToken(valid, stop, header, r.scope)
		ctx = huma.WithContext(ctx, valid)
	}
	sender := ctx
	ctx = huma.WithValue(ctx, grantKey{}, func(s token.Scope) error {
		return a.authorize(sender.Context(), sender.Header("Authorization"), s)
	})
	if key := ctx.Header(replayHeader); key != "" && ctx.Method() == http.MethodPost {
		status = a.replayed(ctx, key, next)
		return
	}
	next(ctx)
}

// authorize returns an error unless the sender of a request has the scope (right). header is the request's
// Authorization header. A client on the unix socket has every scope, but one that sends a token has only the
// scopes of the token.
func (a *API) authorize(ctx context.Context, header string, scope token.Scope) error {
	if scope == "" {
		return nil
	}
	c, _ := ctx.Value(callerKey{}).(caller)
	if header == "" && c.local {
		return nil
	}
	text, ok := token.Bearer(header)
	if !ok {
		return problem.Refused(http.StatusUnauthorized, errs.ErrDenied, "the request needs a header Authorization: Bearer TOKEN; see snapfs token new")
	}
	t, err := a.tokens.Check(text)
	if errors.Is(err, errs.ErrDenied) {
		p := problem.Of(err)
		p.Status, p.Title = http.StatusUnauthorized, http.StatusText(http.StatusUnauthorized)
		return p
	}
	if err != nil {
		return err
	}
	if !slices.Contains(t.Scopes, scope) {
		return errs.New("checking a token", "", errs.ErrDenied, "the token "+t.Name+" has not the scope "+string(scope))
	}
	return nil
}

// endWithToken ends a long stream when its client loses its rights: it calls stop once the token in the
// header Authorization has expired or was removed. It returns when ctx ends.
func (a *API) endWithToken(ctx context.Context, stop func(), header string, scope token.Scope) {
	tick := time.NewTicker(a.recheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if a.authorize(ctx, header, scope) != nil {
				stop()
				return
			}
		}
	}
}
