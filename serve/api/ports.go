package api

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/serve/command"
	"github.com/snapfs/snapfs/serve/ports"
	"github.com/snapfs/snapfs/serve/problem"
	"github.com/snapfs/snapfs/serve/token"
)

// A Ports is a reply of the HTTP API: the servers that listen in a sandbox, and the host's ports that lead to
// them.
type Ports struct {
	Listening []Listening `json:"listening" nullable:"false" doc:"where TCP servers listen inside; none while nothing runs"`
	Forwards  []Forward   `json:"forwards" nullable:"false" doc:"ports of this host's loopback that lead inside, until the sandbox's last process has ended"`
}

// A Listening is an address at which a TCP server in a sandbox listens, in a [Ports].
type Listening struct {
	Address string `json:"address"`
	Port    uint16 `json:"port"`
	Path    string `json:"path" doc:"of this API, at which requests reach it"`
}

// A Forward is a port of this host that leads to a port in a sandbox, in a [Ports].
type Forward struct {
	Port      uint16   `json:"port" doc:"inside"`
	HostPort  uint16   `json:"host_port"`
	Addresses []string `json:"addresses" nullable:"false" doc:"on this host; every user of it can connect"`
}

func forwardOf(p supervise.Port) Forward {
	f := Forward{p.Port, p.Host, []string{}}
	for _, at := range p.Addrs {
		f.Addresses = append(f.Addresses, at.String())
	}
	return f
}

type portsOutput struct{ Body Ports }

type openPortInput struct {
	Named
	Body struct {
		Port     uint16 `json:"port" minimum:"1" maximum:"65535" doc:"inside"`
		HostPort uint16 `json:"host_port,omitempty" maximum:"65535" doc:"of this host's loopback; by default a free one"`
	}
}

type forwardOutput struct{ Body Forward }

// A PortPath is the part of a request's URL that names a port in a sandbox.
type PortPath struct {
	Named
	Port uint16 `path:"port" minimum:"1" maximum:"65535" doc:"the port inside"`
}

const (
	portsPath = "/v1/sandboxes/{name}/ports"
	httpPath  = portsPath + "/{port}/http/"
)

func (a *API) addPorts() {
	add(a, route{scope: token.Read, method: http.MethodGet, path: portsPath, id: "list-ports", summary: "List the servers in a sandbox and its port forwards"}, a.listPorts)
	add(a, route{
		scope: token.Run, method: http.MethodPost, path: portsPath, id: "open-port", summary: "Forward a port of this host into a sandbox", status: http.StatusCreated,
	}, func(ctx context.Context, in *openPortInput) (*forwardOutput, error) {
		e, _, err := a.sandbox(ctx, in.Name)
		if err != nil {
			return nil, err
		}
		p, err := e.Supervise.OpenPort(ctx, in.Name, in.Body.Port, in.Body.HostPort)
		if err != nil {
			return nil, err
		}
		return &forwardOutput{forwardOf(p)}, nil
	})
	add(a, route{
		scope: token.Run, method: http.MethodDelete, path: portsPath + "/{port}", id: "close-port", summary: "End a port forward", status: http.StatusNoContent,
	}, func(ctx context.Context, in *PortPath) (*struct{}, error) {
		e, _, err := a.sandbox(ctx, in.Name)
		if err != nil {
			return nil, err
		}
		return nil, e.Supervise.ClosePort(ctx, in.Name, in.Port)
	})
	a.Mount(httpPath+"{path...}", token.Run, func(w http.ResponseWriter, r *http.Request, _ func(token.Scope) bool) { a.toPort(w, r) })
	name := &huma.Param{Name: "name", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}}
	port := &huma.Param{Name: "port", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeInteger, Minimum: new(1.0), Maximum: new(65535.0)}}
	path := &huma.Param{Name: "path", In: "path", Required: true, Description: "also with slashes", Schema: &huma.Schema{Type: huma.TypeString}}
	a.huma.OpenAPI().AddOperation(&huma.Operation{
		OperationID: "request-port", Method: http.MethodGet, Path: httpPath + "{path}", Summary: "Pass a request on to a server in a sandbox",
		Description: "Any method, also a WebSocket. The server inside sees the path behind http/ and no Authorization and Cookie of the caller. The response is sandboxed " +
			"by its Content-Security-Policy and sets no cookies. 502 where nothing listens.",
		Parameters: []*huma.Param{name, port, path},
		Responses: map[string]*huma.Response{
			"200":     {Description: "what the server inside answers, with its status"},
			"default": {Description: "an error", Content: map[string]*huma.MediaType{"application/problem+json": {Schema: a.schemaOf(problem.Problem{})}}},
		},
		Security: []map[string][]string{{"token": {}}}, Extensions: map[string]any{scopeKey: token.Run},
	})
}

func (a *API) listPorts(ctx context.Context, in *Named) (*portsOutput, error) {
	e, rec, err := a.sandbox(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	out := &portsOutput{Ports{[]Listening{}, []Forward{}}}
	if rec.Supervisor == nil || !proc.Alive(*rec.Supervisor) {
		return out, nil
	}
	open, err := e.Supervise.Ports(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	for _, p := range open {
		out.Body.Forwards = append(out.Body.Forwards, forwardOf(p))
	}
	if onHost(rec) { // the servers of the whole host
		return out, nil
	}
	found, err := listeningIn(ctx, e, rec)
	for _, at := range found {
		out.Body.Listening = append(out.Body.Listening, Listening{
			at.Addr().String(), at.Port(), "/v1/sandboxes/" + in.Name + "/ports/" + strconv.Itoa(int(at.Port())) + "/http/",
		})
	}
	return out, err
}

// onHost reports whether the sandbox of rec uses the host's network, and so has no ports of its own.
func onHost(rec *catalog.Record) bool { return rec.Policy.Network == "host" }

// listTime bounds how long the command may run that lists a sandbox's listening sockets from inside.
const listTime = 10 * time.Second

// listeningIn returns the addresses at which servers in a running sandbox listen. A command inside the
// sandbox reads them, so that it sees nothing else of the host.
func listeningIn(ctx context.Context, e *engine.Engine, rec *catalog.Record) ([]netip.AddrPort, error) {
	c, err := CommandLine{Args: append([]string{"cat"}, ports.Files()...)}.command(rec)
	if err != nil {
		return nil, err
	}
	c.Dir = "/"
	var text collected
	x, err := command.Start(ctx, e, rec.Name, c, command.Options{ExecOptions: supervise.ExecOptions{EndAtTTL: true}, Sink: func(stream string, p []byte) {
		if stream == command.Stdout {
			text.add(p)
		}
	}})
	if err != nil {
		return nil, err
	}
	if _, err := x.Wait(ctx, listTime); err != nil {
		return nil, err
	}
	return ports.Listening(string(text.data)), nil
}

// toPort passes an HTTP request on to a server at a port of a sandbox. The sandbox must be running, and have
// a network of its own.
func (a *API) toPort(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	e, rec, err := a.sandbox(r.Context(), name)
	n, perr := strconv.ParseUint(r.PathValue("port"), 10, 16)
	switch {
	case err != nil:
	case perr != nil || n == 0:
		err = errs.New("reaching a port", name, errs.ErrInvalid, "the port must be from 1 to 65535")
	case r.Method == http.MethodTrace: // it would return what the caller sent
		w.Header().Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
		problem.Refused(http.StatusMethodNotAllowed, errs.ErrInvalid, "a request with the method TRACE is not passed on").Answer(w)
		return
	case onHost(rec):
		err = errs.New("reaching a port", name, errs.ErrNotSupported, "the sandbox uses the host's network, whose ports are not only its own")
	}
	var p supervise.Port
	if err == nil {
		p, err = e.Supervise.OpenProxyPort(r.Context(), name, uint16(n))
	}
	if err == nil && len(p.Addrs) == 0 {
		err = errs.New("reaching a port", name, errs.ErrInterrupted, "the sandbox ends")
	}
	if err != nil {
		problem.Of(err).Answer(w)
		return
	}
	prefix := strings.NewReplacer("{name}", name, "{port}", r.PathValue("port")).Replace(httpPath)
	(&ports.Proxy{To: p.Addrs[0], Port: uint16(n), Prefix: prefix, Fail: func(w http.ResponseWriter, _ error) {
		problem.Refused(http.StatusBadGateway, errs.ErrClosed, "no server answers at this port of the sandbox").Answer(w)
	}}).ServeHTTP(w, r)
}
