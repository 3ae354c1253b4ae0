package mcpserver

import (
	"context"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/snapfs/snapfs/serve"
)

// sessionless is the first version of the protocol without sessions. Versions are dates.
const sessionless = "2026-07-28"

// idle is how long a session without requests lasts.
const idle = time.Hour

// promoteHeader is a header that WithPromote sets.
const promoteHeader = "Snapfs-May-Promote"

// WithPromote returns the request with a note of whether its sender may promote, in place of one by the sender.
func WithPromote(r *http.Request, may bool) *http.Request {
	r = r.Clone(r.Context())
	r.Header.Del(promoteHeader)
	if may {
		r.Header.Set(promoteHeader, "1")
	}
	return r
}

// mayPromote reports whether the sender of a call may promote: over the standard streams always.
func mayPromote(r *mcp.CallToolRequest) bool {
	return r.Extra == nil || r.Extra.Header == nil || r.Extra.Header.Get(promoteHeader) != ""
}

// Handler returns a handler that answers clients by the protocol's streamable HTTP transport, at whatever path it is
// called for. A request of a version without sessions is answered by itself. An older client gets a session, on which
// a person can be asked. A command of sandbox_exec ends with ctx; without a session also with its request, and with one
// when the client cancels the call or the session ends. Errors: those of the random source.
//
// Handler checks no token: its caller does, and passes every request through [WithPromote]. Over HTTP the sender of a
// request also answers its questions, so an answer alone does not permit a promotion. Handler refuses a request from a
// page of another origin, and one over loopback with the host name of another machine.
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
