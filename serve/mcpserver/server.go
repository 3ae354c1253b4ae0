// Package mcpserver offers the operations of package serve to agents by the Model Context Protocol: as tools,
// as resources and as a prompt.
//
// Read [Serve] first. The package speaks the protocol with sessions, and since its version 2026-07-28
// without, where each request says who sends it. It decides nothing: package serve does, within the rules of
// the person who started the server.
package mcpserver

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve"
)

// instructions is the text for an agent's model about when to use the tools of this server, and in which
// order.
const instructions = `snapfs clones this machine's whole environment in milliseconds. Work in a clone, and bring back
only what proved good:
1. sandbox_new makes a clone: the working directory with all uncommitted and ignored files, and everything installed.
2. sandbox_exec runs commands in it; also edit files that way. Nothing outside the clone changes.
3. sandbox_checkpoint and sandbox_rollback return to earlier states. sandbox_race tries several commands in parallel clones.
4. sandbox_diff shows what changed. sandbox_promote merges it into the real directory: a person sees the plan and decides.
5. sandbox_remove removes a clone that is not needed any more.
Your own file tools act on the real files, not on those in a sandbox.`

// A server answers the MCP requests of clients by calling the operations of a [serve.Service].
type server struct {
	service *serve.Service
	// key signs the state that a client returns with a person's answer. It is of this process only.
	key [32]byte

	mu sync.Mutex
	// used are the questions that a person has accepted, each until its time is over.
	used map[string]time.Time
}

// Options are the parts of [Serve] and [Handler] that differ between callers, such as the connection to the
// client.
type Options struct {
	// Version is that of snapfs.
	Version string
	// In and Out are the connection to the client. Serve closes both; Handler has none.
	In  io.ReadCloser
	Out io.WriteCloser
	// Log gets errors of the connection.
	Log *slog.Logger
}

// Serve answers the requests of the client at o.In by the Model Context Protocol until the input ends, which
// is no error, or ctx does. Commands that run in a call of the tool sandbox_exec end with Serve; background
// commands continue.
func Serve(ctx context.Context, service *serve.Service, o Options) error {
	calls, stop := context.WithCancel(ctx)
	defer stop()
	m, err := newServer(calls, service, o)
	if err != nil {
		return err
	}
	in := &draining{Transport: &mcp.IOTransport{Reader: o.In, Writer: o.Out}, calls: calls, end: stop}
	if err := m.Run(context.WithoutCancel(ctx), in); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// newServer returns an MCP server with all tools, resources and prompts. Its calls end with ctx.
func newServer(ctx context.Context, service *serve.Service, o Options) (*mcp.Server, error) {
	s := &server{service: service}
	if _, err := rand.Read(s.key[:]); err != nil {
		return nil, err
	}
	m := mcp.NewServer(&mcp.Implementation{Name: "snapfs", Title: "snapfs", Version: o.Version}, &mcp.ServerOptions{
		Instructions: instructions, Logger: o.Log,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}, Prompts: &mcp.PromptCapabilities{}, Resources: &mcp.ResourceCapabilities{}},
	})
	s.addTools(m)
	s.addPromote(m)
	s.withhold(m)
	s.addResources(m)
	s.addPrompts(m)
	m.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(call context.Context, method string, r mcp.Request) (mcp.Result, error) {
			call, done := context.WithCancel(call)
			defer done()
			defer context.AfterFunc(ctx, done)() // a call ends with the connection
			return next(call, method, r)
		}
	})
	return m, nil
}

// forModel returns an error whose text, with its hints, is written for an agent's model, or nil for nil. The
// SDK makes it the result of the tool that the model called.
func forModel(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(textOf(err))
}

// mostError is the largest length in bytes of an error's text that a model gets. A longer text is cut.
const mostError = 8 << 10

// textOf returns an error with its hints as text for a model, at most mostError bytes long.
func textOf(err error) string {
	var b strings.Builder
	b.WriteString(err.Error())
	for _, h := range errs.HintsOf(err) {
		b.WriteString("\nhint: " + h)
	}
	text := strings.ToValidUTF8(b.String(), "?")
	if len(text) > mostError {
		text = strings.ToValidUTF8(text[:mostError], "") + " …"
	}
	return text
}
