package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/command"
	"github.com/snapfs/snapfs/serve/problem"
	"github.com/snapfs/snapfs/serve/token"
	"github.com/snapfs/snapfs/serve/tty"
)

// A TerminalRequest is a text message from the client of a terminal: it starts the command, or sets the size,
// or sends a signal.
type TerminalRequest struct {
	tty.Request
	CommandLine
	Timeout string `json:"timeout,omitempty" example:"5m" doc:"of start: end the command after this time"`
}

// usualTerm is the value of TERM for a command in a terminal if the client sets none.
const usualTerm = "xterm-256color"

func (a *API) addTerminal() {
	add(a, route{
		scope: token.Run, method: http.MethodGet, path: "/v1/sandboxes/{name}/terminal", id: "terminal", summary: "Run a command in a terminal, over a WebSocket", stream: true,
		detail: "The first message is a TerminalRequest of type start. A binary message is input, and one from here is output. Text messages are JSON: " +
			"a TerminalRequest of type resize or signal, and from here a TerminalEvent. At the end comes an event exit or error, then a close frame: 1000 after the " +
			"end of the command, 1001 if the server ends, 1008 for a wrong message or an expired token, 1009 for a message beyond 256 KiB, 1011 for a " +
			"command that cannot run. If the caller goes, the command is ended. The subprotocol is " + tty.Protocol + ".",
		edit: func(op *huma.Operation) {
			op.Responses = map[string]*huma.Response{"101": {Description: "a session"}}
			op.Errors = append(op.Errors, http.StatusUpgradeRequired)
			a.schemaOf(TerminalRequest{})
			a.schemaOf(TerminalEvent{})
		},
	}, a.terminal)
}

// A TerminalEvent is a text message to the client of a terminal, such as the end of the command.
type TerminalEvent = tty.Event

func (a *API) terminal(ctx context.Context, in *Named) (*huma.StreamResponse, error) {
	e, rec, err := a.sandbox(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	start := func(ctx context.Context, message []byte, size command.Size, sink func(string, []byte)) (*command.Running, time.Duration, error) {
		q := TerminalRequest{}
		if err := json.Unmarshal(message, &q); err != nil {
			return nil, 0, errs.New("running a command", in.Name, errs.ErrInvalid, err.Error())
		}
		limit, err := timeoutOf(in.Name, q.Timeout)
		if err != nil {
			return nil, 0, err
		}
		q.Env = append([]string{"TERM=" + usualTerm}, q.Env...) // not that of the server; the caller's own replaces it
		c, err := q.command(rec)
		if err != nil {
			return nil, 0, err
		}
		o := command.Options{Terminal: &size, Sink: sink}
		if o.ExecOptions, err = q.options(); err != nil {
			return nil, 0, err
		}
		x, err := command.Start(ctx, e, in.Name, c, o)
		return x, limit, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		r, w := humago.Unwrap(hc)
		if status, why := tty.Check(r); status != 0 {
			p := problem.Refused(status, errs.ErrDenied, why)
			if status == http.StatusUpgradeRequired {
				p.Kind = errs.ErrInvalid.Error()
				hc.SetHeader("Upgrade", "websocket")
			}
			p.Write(hc)
			return
		}
		o := tty.Options{Start: start, Problem: func(err error) any { return problem.Of(err) }, Ping: a.ping}
		if c, _ := ctx.Value(callerKey{}).(caller); c.server != nil {
			c.server.terminals.Add(1)
			defer c.server.terminals.Done()
			o.Ending = c.server.ending
		}
		_ = tty.Serve(ctx, w, r, o) // an error was answered
	}}, nil
}
