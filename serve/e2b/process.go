package e2b

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/e2b/envd"
)

// A processes carries out the requests of E2B's process service: starting commands in a sandbox, and their
// input, output and signals.
type processes struct{ s *Server }

var _ envd.ProcessHandler = (*processes)(nil)

// maxCommands is the largest number of commands of one sandbox that run at once; a request for one more
// fails. Each command holds file descriptors of the server.
const maxCommands = 500

func itoa(n int) string { return strconv.Itoa(n) }

// List handles a request to describe the running commands of a sandbox, with the numbers by which clients
// name them.
func (p *processes) List(ctx context.Context, _ *envd.ListRequest) (*envd.ListResponse, error) {
	out := &envd.ListResponse{}
	for _, x := range p.s.resourcesOf(sandboxOf(ctx)).all() {
		out.Processes = append(out.Processes, &envd.ProcessInfo{Config: x.config, Pid: x.pid, Tag: x.tag})
	}
	return out, nil
}

// Start handles a request to run a command in a sandbox: it sends the output to the client until the command
// ends. If the client leaves, the command continues. At the deadline of the request the command is killed.
func (p *processes) Start(ctx context.Context, q *envd.StartRequest, to *connect.ServerStream[envd.StartResponse]) error {
	b := sandboxOf(ctx)
	c, input, err := p.s.command(b, q, callOf(ctx))
	if err != nil {
		return rpcError(err)
	}
	if len(p.s.resourcesOf(b).all()) >= maxCommands {
		return connect.NewError(connect.CodeResourceExhausted, errors.New("the sandbox runs too many commands"))
	}
	r := newReader()
	defer r.leave()
	// Not with the request's context: the command outlives it.
	x, err := start(p.s.ctx, b, c, input, supervise.ExecOptions{Admission: p.s.admission()}, r)
	if err != nil {
		return rpcError(startError(err))
	}
	x.config, x.tag = q.Process, q.Tag
	if deadline, ok := ctx.Deadline(); ok {
		t := time.AfterFunc(time.Until(deadline), func() { _ = x.process.SignalGroup(syscall.SIGKILL) }) // it may have ended
		x.mu.Lock()
		x.cancel = func() { t.Stop() }
		x.mu.Unlock()
	}
	p.s.resourcesOf(b).add(x)
	return x.follow(ctx, p.s, b, r, func(event *envd.ProcessEvent) error { return to.Send(&envd.StartResponse{Event: event}) })
}

// Connect handles a client's request for the output of a command that already runs in a sandbox: it sends the
// output from now on.
func (p *processes) Connect(ctx context.Context, q *envd.ConnectRequest, to *connect.ServerStream[envd.ConnectResponse]) error {
	b := sandboxOf(ctx)
	x, err := p.s.resourcesOf(b).find(q.Process)
	if err != nil {
		return rpcError(err)
	}
	return x.follow(ctx, p.s, b, x.attach(), func(event *envd.ProcessEvent) error { return to.Send(&envd.ConnectResponse{Event: event}) })
}

func errTooSlow() error {
	return connect.NewError(connect.CodeResourceExhausted, errors.New("the client reads the output too slowly"))
}

// follow sends the events of a command, such as its output, to the client that reads through r, until the
// command's end, and empty messages to hold the connection open.
func (x *command) follow(ctx context.Context, s *Server, b *opened, r *reader, send func(*envd.ProcessEvent) error) error {
	defer x.detach(r)
	if err := send(&envd.ProcessEvent{Event: &envd.ProcessEvent_Start{Start: &envd.ProcessEvent_StartEvent{Pid: x.pid}}}); err != nil {
		return err
	}
	alive := time.NewTicker(callOf(ctx).keepalive())
	defer alive.Stop()
	for {
		var err error
		select {
		case event := <-r.events:
			err = send(event)
		case <-r.dropped:
			return errTooSlow()
		case <-alive.C:
			err = send(&envd.ProcessEvent{Event: &envd.ProcessEvent_Keepalive{Keepalive: &envd.ProcessEvent_KeepAlive{}}})
		case <-ctx.Done():
			return ctx.Err()
		case <-x.done:
			return x.finish(ctx, s, b, r, send)
		}
		if err != nil {
			return err
		}
	}
}

// finish sends a client the rest of the command's output, and its end. For a command that ended with its
// sandbox it sends no end; the client then looks whether the sandbox still exists.
func (x *command) finish(ctx context.Context, s *Server, b *opened, r *reader, send func(*envd.ProcessEvent) error) error {
	for {
		select {
		case event := <-r.events:
			if err := send(event); err != nil {
				return err
			}
			continue
		case <-r.dropped:
			return errTooSlow()
		default:
		}
		break
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	if end := x.ended.GetEnd(); !end.Exited {
		if _, err := s.sandbox(ctx, b.Name); errors.Is(err, errs.ErrNotFound) {
			return connect.NewError(connect.CodeUnavailable, errors.New("the sandbox ended before the command did"))
		}
	}
	return send(x.ended)
}

// Update handles a request to set the size of the terminal in which a command of a sandbox runs.
func (p *processes) Update(ctx context.Context, q *envd.UpdateRequest) (*envd.UpdateResponse, error) {
	x, err := p.s.resourcesOf(sandboxOf(ctx)).find(q.Process)
	if err == nil && q.Pty != nil {
		err = x.resize(q.Pty.Size)
	}
	return &envd.UpdateResponse{}, rpcError(err)
}

// SendInput handles a request to write one message to the standard input or the terminal of a running command
// of a sandbox.
func (p *processes) SendInput(ctx context.Context, q *envd.SendInputRequest) (*envd.SendInputResponse, error) {
	x, err := p.s.resourcesOf(sandboxOf(ctx)).find(q.Process)
	if err == nil {
		err = x.input(ctx, q.Input)
	}
	return &envd.SendInputResponse{}, rpcError(err)
}

func (x *command) input(ctx context.Context, in *envd.ProcessInput) error {
	switch data := in.GetInput().(type) {
	case *envd.ProcessInput_Stdin:
		return x.write(ctx, data.Stdin, false)
	case *envd.ProcessInput_Pty:
		return x.write(ctx, data.Pty, true)
	}
	return errs.New("writing input", "", errs.ErrInvalid, "the request has no input")
}

// StreamInput handles a request that writes a stream of messages to the standard input or the terminal of the
// command that the first message names.
func (p *processes) StreamInput(ctx context.Context, from *connect.ClientStream[envd.StreamInputRequest]) (*envd.StreamInputResponse, error) {
	var x *command
	for from.Receive() {
		var err error
		switch event := from.Msg().GetEvent().(type) {
		case *envd.StreamInputRequest_Start:
			x, err = p.s.resourcesOf(sandboxOf(ctx)).find(event.Start.GetProcess())
		case *envd.StreamInputRequest_Data:
			if err = errs.New("writing input", "", errs.ErrInvalid, "the first message names no command"); x != nil {
				err = x.input(ctx, event.Data.GetInput())
			}
		}
		if err != nil {
			return nil, rpcError(err)
		}
	}
	if err := from.Err(); err != nil {
		return nil, err
	}
	return &envd.StreamInputResponse{}, nil
}

// SendSignal handles a request to send a signal to a running command of a sandbox, or SIGKILL to its whole
// process group.
func (p *processes) SendSignal(ctx context.Context, q *envd.SendSignalRequest) (*envd.SendSignalResponse, error) {
	x, err := p.s.resourcesOf(sandboxOf(ctx)).find(q.Process)
	if err == nil {
		switch q.Signal {
		case envd.Signal_SIGNAL_SIGKILL:
			err = x.process.SignalGroup(syscall.SIGKILL)
		case envd.Signal_SIGNAL_SIGTERM:
			err = x.process.Signal(syscall.SIGTERM)
		default:
			err = errs.New("sending a signal", "", errs.ErrInvalid, "the signal must be SIGTERM or SIGKILL")
		}
	}
	return &envd.SendSignalResponse{}, rpcError(err)
}

// CloseStdin handles a request to end the standard input of a running command of a sandbox.
func (p *processes) CloseStdin(ctx context.Context, q *envd.CloseStdinRequest) (*envd.CloseStdinResponse, error) {
	x, err := p.s.resourcesOf(sandboxOf(ctx)).find(q.Process)
	if err == nil {
		err = x.closeInput()
	}
	return &envd.CloseStdinResponse{}, rpcError(err)
}

// startError converts the error that a program does not exist to ErrInvalid, because a client would take "not
// found" for a missing sandbox.
func startError(err error) error {
	var c *engine.CommandError
	if errors.As(err, &c) {
		return &errs.Error{Op: "starting", Path: c.Path, Kind: errs.ErrInvalid, Err: c.Errno}
	}
	return err
}

// command converts a client's request to start a command into the engine's form, and reports whether the
// command gets a standard input. call holds the values of the request's headers.
func (s *Server) command(b *opened, q *envd.StartRequest, call *call) (engine.Command, bool, error) {
	const op = "starting"
	if err := s.checkUser(call.user); err != nil {
		return engine.Command{}, false, err
	}
	config := q.Process
	if config.GetCmd() == "" {
		return engine.Command{}, false, errs.New(op, "", errs.ErrInvalid, "the request names no command")
	}
	args := append([]string{config.Cmd}, config.Args...)
	if slices.ContainsFunc(append(args, config.GetCwd()), func(a string) bool { return strings.ContainsRune(a, 0) }) {
		return engine.Command{}, false, errs.New(op, "", errs.ErrInvalid, "an argument contains a zero byte")
	}
	for name, value := range config.Envs {
		if err := checkVariable(name, value); err != nil {
			return engine.Command{}, false, err
		}
	}
	c := engine.Command{Args: args, Env: s.environment(b, config.Envs), Dir: b.Workspace}
	if dir := config.GetCwd(); dir != "" {
		c.Dir = b.path(dir)
	}
	if size := q.GetPty().GetSize(); q.Pty != nil {
		if size == nil {
			size = &envd.PTY_Size{Cols: 80, Rows: 24}
		}
		if size.Cols > 1<<15 || size.Rows > 1<<15 {
			return c, false, errs.New(op, "", errs.ErrInvalid, "a terminal has from 0 to 32768 columns and rows")
		}
		tty := sizeOf(size)
		c.TTY = &tty
	}
	return c, q.Stdin == nil || *q.Stdin, nil // an older client does not ask for what it uses
}

// A call holds the values of the headers of a request for E2B's program in a sandbox (envd): the user to run
// as, and how often to send empty messages.
type call struct {
	user string
	ping time.Duration
}

// keepalive returns the time between two empty messages to the client of a running command, which hold the
// connection open.
func (c *call) keepalive() time.Duration {
	if c.ping <= 0 {
		return 50 * time.Second
	}
	return c.ping
}

func newCall(h http.Header, user string) *call {
	c := &call{user: user}
	if n, err := strconv.Atoi(h.Get("Keepalive-Ping-Interval")); err == nil && n > 0 && n <= 3600 {
		c.ping = time.Duration(n) * time.Second
	}
	return c
}
