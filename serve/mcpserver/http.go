package mcpserver

import (
	"context"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/snapfs/snapfs/serve"
)

// sessionless is the first version of the Model Context Protocol without sessions. Versions are dates.
const sessionless = "2026-07-28"

// idle is how long a client's session of the Model Context Protocol stays open without a request: an hour.
// Then the session ends.
const idle = time.Hour

// promoteHeader is an internal HTTP header by which [WithPromote] notes on a request that its sender may
// promote.
const promoteHeader = "Snapfs-May-Promote"

// WithPromote returns a copy of the HTTP request r with a note whether its sender may promote. It removes
// such a note that the sender made.
func WithPromote(r *http.Request, may bool) *http.Request {
	r = r.Clone(r.Context())
	r.Header.Del(promoteHeader)
	if may {
		r.Header.Set(promoteHeader, "1")
	}
	return r
}

// mayPromote reports whether the client that sent a tool call may promote. A client on the standard streams
// always may; over HTTP [WithPromote] has decided.
func mayPromote(r *mcp.CallToolRequest) bool {
	return r.Extra == nil || r.Extra.Header == nil || r.Extra.Header.Get(promoteHeader) != ""
}

// Handler returns a handler that answers clients by the streamable HTTP transport of the Model Context
// Protocol, at any path. A request of a protocol version without sessions is answered by itself. An older
// client gets a session, on which a person can be asked. A command of sandbox_exec ends with ctx. Without a
// session it also ends with its request; with a session, when the client cancels the call or the session
// ends. Errors: those of the random source.
//
// Handler checks no token: its caller does, and passes every request through [WithPromote]. Over HTTP the
// sender of a request also answers its questions, so an answer alone does not permit a promotion. Handler
// refuses a request from a page of another origin, and one over loopback with the host name of another
// machine.
func Handler(ctx context.Context, service *serve.Service, o Options) (http.Handler, error) {
	m, err := newServer(ctx, service, o)
	if err != nil {
		return nil, err
	}
	server := func(*http.Request) *mcp.Server { return m }
	with := mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{Logger: o.Log, SessionTimeout: idle})
	without := mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{
		Logger: o.Log, Stateless: true, PropagateRequestCancellation: true,
	})
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= sessionless {
			without.ServeHTTP(w, r)
			return
		}
		with.ServeHTTP(w, r)
	})), nil
}
