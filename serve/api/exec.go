package api

import (
	"context"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/units"
	"github.com/snapfs/snapfs/serve/command"
	"github.com/snapfs/snapfs/serve/problem"
	"github.com/snapfs/snapfs/serve/token"
)

// A CommandLine is the part of a request that describes a command to run in a sandbox.
type CommandLine struct {
	Command string   `json:"command,omitempty" doc:"a shell command; or give args"`
	Args    []string `json:"args,omitempty" doc:"a program and its arguments, without a shell; or give command"`
	Dir     string   `json:"dir,omitempty" doc:"the directory to start in, absolute or relative to the workspace; by default the workspace"`
	Env     []string `json:"env,omitempty" doc:"more variables, as NAME=VALUE"`
	Queue   string   `json:"queue,omitempty" example:"30s" doc:"wait so long for capacity, where the sandbox does not run yet"`
	IfRoom  bool     `json:"if_room,omitempty" doc:"fail with 503 where this host has no capacity"`
}

// An ExecRequest is a client's request to run a command in a sandbox and to wait for its end.
type ExecRequest struct {
	CommandLine
	Stdin       string `json:"stdin,omitempty" doc:"text for its standard input"`
	StdinBase64 []byte `json:"stdin_base64,omitempty" doc:"bytes for its standard input, in place of stdin"`
	StdinOpen   bool   `json:"stdin_open,omitempty" doc:"leave its standard input open, for write-stdin; requires a stream"`
	Timeout     string `json:"timeout,omitempty" example:"5m" doc:"end the command after this time; by default when it ends, or its caller goes"`
}

// An Output is the data that a command wrote to its standard output or standard error, in a reply of the HTTP
// API.
type Output struct {
	Text    string `json:"text,omitempty"`
	Base64  []byte `json:"base64,omitempty" doc:"in place of text, where the bytes are not UTF-8"`
	Bytes   int64  `json:"bytes" doc:"how many bytes the command wrote"`
	LeftOut int64  `json:"left_out" doc:"how many bytes at the end are left out: of each stream 4 MiB are returned"`
}

// An ExecResult is the reply to an [ExecRequest], which runs a command in a sandbox: how the command ended
// and its output.
type ExecResult struct {
	command.Ended
	Stdout Output `json:"stdout"`
	Stderr Output `json:"stderr"`
}

type execInput struct {
	Named
	Accept string `header:"Accept"`
	Body   ExecRequest
}

func (a *API) addExec() {
	add(a, route{
		scope: token.Run, method: http.MethodPost, path: "/v1/sandboxes/{name}/exec", id: "exec", summary: "Run a command and return its output", stream: true,
		detail: "Answers when the command has ended. Where Accept prefers a stream, it answers at once: events stdout and stderr with text or base64, " +
			"lost where the caller was too slow for a part, and at the end exit or error. If the caller goes, the command is ended. " +
			"The header " + execHeader + " of a stream is the ID of the command, for write-stdin and send-signal.",
		edit: func(op *huma.Operation) {
			op.Responses = map[string]*huma.Response{"200": {Description: "the result, or a stream of events", Content: map[string]*huma.MediaType{
				jsonType:   {Schema: a.schemaOf(ExecResult{})},
				ndjsonType: {Schema: &huma.Schema{Type: "string", Description: "an ExecEvent in each line"}},
				sseType:    {Schema: &huma.Schema{Type: "string"}},
			}, Headers: map[string]*huma.Param{execHeader: {Description: "of a stream: the ID of the command while it runs", Schema: &huma.Schema{Type: "string"}}}}}
			a.schemaOf(ExecEvent{})
		},
	}, a.exec)
}

// command converts a client's command into the engine's form, for the sandbox of rec. Errors: ErrInvalid.
func (c CommandLine) command(rec *catalog.Record) (engine.Command, error) {
	return c.in(rec.Workspace, hostfs.Environ(os.Environ(), rec.Policy.Env))
}

// in converts a client's command into the engine's form. A relative directory begins at workspace; the
// environment is env with the client's variables added. Errors: ErrInvalid.
func (c CommandLine) in(workspace string, env []string) (engine.Command, error) {
	bad := func(text string) (engine.Command, error) {
		return engine.Command{}, errs.New("running a command", "", errs.ErrInvalid, text)
	}
	args := c.Args
	switch {
	case (c.Command == "") == (len(args) == 0) || len(args) > 0 && args[0] == "":
		return bad("give either command or args")
	case c.Command != "":
		args = []string{"/bin/sh", "-c", c.Command}
	}
	for _, text := range slices.Concat(args, c.Env, []string{c.Dir}) {
		if strings.ContainsRune(text, 0) {
			return bad("an argument contains a zero byte")
		}
	}
	env = slices.Clone(env)
	for _, v := range c.Env {
		name, _, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return bad("env takes NAME=VALUE")
		}
		env = slices.DeleteFunc(env, func(o string) bool { return strings.HasPrefix(o, name+"=") })
		env = append(env, v)
	}
	if !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "PATH=") }) {
		env = append(env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}
	return engine.Command{Args: args, Env: env, Dir: within(workspace, c.Dir)}, nil
}

// within returns path, a client's path in a sandbox, as an absolute path; a relative one begins at workspace.
func within(workspace, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(workspace, path)
}

func (c CommandLine) options() (o supervise.ExecOptions, err error) {
	o.EndAtTTL = true
	o.Admission, err = waiting(c.Queue, c.IfRoom)
	return o, err
}

func (a *API) exec(ctx context.Context, in *execInput) (*huma.StreamResponse, error) {
	q := &in.Body
	limit, err := timeoutOf(in.Name, q.Timeout)
	if err != nil {
		return nil, err
	}
	kind := accepts(in.Accept, jsonType, ndjsonType, sseType)
	input := q.StdinBase64
	switch {
	case q.Stdin != "" && q.StdinBase64 != nil:
		return nil, errs.New("running a command", in.Name, errs.ErrInvalid, "stdin and stdin_base64 exclude each other")
	case q.StdinOpen && kind == jsonType:
		return nil, errs.New("running a command", in.Name, errs.ErrInvalid, "stdin_open requires that Accept prefers a stream")
	case q.Stdin != "":
		input = []byte(q.Stdin)
	}
	e, rec, err := a.sandbox(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	c, err := q.command(rec)
	if err != nil {
		return nil, err
	}
	o := command.Options{Input: input, Open: q.StdinOpen}
	if o.ExecOptions, err = q.options(); err != nil {
		return nil, err
	}
	if kind == jsonType {
		var out, errOut collected
		o.Sink = func(name string, p []byte) {
			if name == command.Stderr {
				errOut.add(p)
			} else {
				out.add(p)
			}
		}
		x, err := command.Start(ctx, e, in.Name, c, o)
		if err != nil {
			return nil, err
		}
		ended, err := x.Wait(ctx, limit)
		if err != nil {
			return nil, err
		}
		return stream(kind, func(w *writer) { writeJSON(w, ExecResult{ended, out.output(), errOut.output()}) }), nil
	}
	feed := command.NewQueue()
	o.Sink = feed.Add
	x, err := command.Start(ctx, e, in.Name, c, o)
	if err != nil {
		return nil, err
	}
	id, done := a.running.add(in.Name, x)
	r := stream(kind, func(w *writer) {
		defer done()
		streamEvents(ctx, x, eventWriter{w, kind == sseType}, feed, limit)
	})
	body := r.Body
	r.Body = func(ctx huma.Context) {
		ctx.SetHeader(execHeader, id)
		body(ctx)
	}
	return r, nil
}

// timeoutOf parses the timeout of a request, such as "5m"; 0 means none. sandbox is named in errors. Errors:
// ErrInvalid.
func timeoutOf(sandbox, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	limit, err := units.ParseDuration(text)
	if err != nil || limit <= 0 {
		return 0, errs.New("running a command", sandbox, errs.ErrInvalid, "the timeout is no duration")
	}
	return limit, nil
}

// maxCollected is how many bytes of each stream of a command a reply holds, 4 MiB; the rest is counted only.
const maxCollected = 4 << 20

// A collected is the beginning of a command's stream, for the reply, and the length of the whole.
type collected struct {
	data []byte
	n    int64
}

func (c *collected) add(p []byte) {
	c.n += int64(len(p))
	c.data = append(c.data, p[:min(len(p), maxCollected-len(c.data))]...)
}

func (c *collected) output() Output {
	o := Output{Bytes: c.n, LeftOut: c.n - int64(len(c.data))}
	whole := c.data
	if o.LeftOut > 0 {
		whole = wholeRunes(whole)
		o.LeftOut = c.n - int64(len(whole))
	}
	o.Text, o.Base64 = textOf(whole)
	return o
}

// textOf returns p as a text for JSON if it is UTF-8, and otherwise as raw bytes, which JSON encodes in
// base64.
func textOf(p []byte) (text string, raw []byte) {
	if utf8.Valid(p) {
		return string(p), nil
	}
	return "", p
}

// wholeRunes returns p, output cut at any byte, without an incomplete UTF-8 character at its end.
func wholeRunes(p []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if last := p[len(p)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return p[:len(p)-n]
			}
			break
		}
	}
	return p
}

// An ExecEvent is one event that the API streams to the client of a running command: output, lost output, or
// the command's end.
type ExecEvent struct {
	Type   string           `json:"type" enum:"stdout,stderr,lost,exit,error"`
	Text   string           `json:"text,omitempty" doc:"of stdout and stderr"`
	Base64 string           `json:"base64,omitempty" doc:"in place of text, where the bytes are not UTF-8"`
	Stream string           `json:"stream,omitempty" doc:"of lost: stdout or stderr"`
	Bytes  int64            `json:"bytes,omitempty" doc:"of lost: how many bytes are left out here"`
	Exit   *command.Ended   `json:"exit,omitempty" doc:"of exit"`
	Error  *problem.Problem `json:"error,omitempty" doc:"of error: why the command was ended"`
}

// streamEvents streams to a client the output of the command x, which feed holds, and then the command's end.
// It ends the command after the duration limit, unless that is 0.
func streamEvents(ctx context.Context, x *command.Running, out eventWriter, feed *command.Queue, limit time.Duration) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	_ = out.w.flush() // the headers, before the first output
	go beats(ctx, out, stop)
	last := ExecEvent{Type: "exit"}
	go func() {
		ended, err := x.Wait(ctx, limit)
		if last.Exit = &ended; err != nil {
			last = ExecEvent{Type: "error", Error: problem.Of(err)}
		}
		feed.End()
	}()
	rest := map[string][]byte{}
	send := func(ev ExecEvent) {
		if err := out.send("", ev.Type, ev); err != nil {
			stop(errGone)
		}
	}
	for {
		c, ok := feed.Next()
		if !ok {
			break
		}
		if c.Lost > 0 {
			send(ExecEvent{Type: "lost", Stream: c.Stream, Bytes: c.Lost})
			continue
		}
		data := append(rest[c.Stream], c.Data...)
		whole := wholeRunes(data)
		rest[c.Stream] = slices.Clone(data[len(whole):])
		if len(whole) > 0 {
			send(outputEvent(c.Stream, whole))
		}
	}
	for _, name := range []string{command.Stdout, command.Stderr} {
		if len(rest[name]) > 0 {
			send(outputEvent(name, rest[name]))
		}
	}
	send(last)
}

func outputEvent(stream string, data []byte) ExecEvent {
	text, raw := textOf(data)
	return ExecEvent{Type: stream, Text: text, Base64: base64.StdEncoding.EncodeToString(raw)}
}
