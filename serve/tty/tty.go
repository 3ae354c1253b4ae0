// Package tty serves the terminal of a command over a WebSocket.
//
// The client's first message says which command to run. From then on a binary message from the client is
// input, and one from the server is output. A text message is JSON: a [Request] of the client or an [Event]
// for it. At the end the server sends an event exit or error, then a close frame. Its status is 1000 after
// the end of the command, 1001 if the server ends, 1008 for a message that is no request or a client that may
// not continue, 1009 for a message that is too long, and 1011 for a command that cannot run.
//
// A session is bounded in everything that a client chooses. A client that reads too slowly loses output, as
// an event says, and one that answers no ping is considered gone. The command ends with its client.
package tty

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/command"
)

// Protocol is the name of the WebSocket subprotocol of terminals, which a client may ask for.
const Protocol = "snapfs.terminal.v1"

// Bounds of a terminal's session with a client: sizes of messages and waiting input, and times. The session
// ends when the client exceeds one.
const (
	maxMessage = 256 << 10 // bytes of a caller's message
	maxInput   = 1 << 20   // bytes of input that the command has not read
	maxInputs  = 4096      // messages with that input
	startTime  = 30 * time.Second
	stallTime  = 30 * time.Second // for which a caller may read nothing, or answer no ping
	pingTime   = 15 * time.Second
)

// A Request is a text message from the client of a terminal: it starts the command, sets the terminal's size,
// or sends a signal.
type Request struct {
	Type string `json:"type" enum:"start,resize,signal" doc:"start: the first message, with the fields of a command, too"`
	Cols uint16 `json:"cols,omitempty" maximum:"32767" doc:"of start and resize; by default 80"`
	Rows uint16 `json:"rows,omitempty" maximum:"32767" doc:"of start and resize; by default 24"`

	Signal string `json:"signal,omitempty" doc:"of signal: HUP, INT, QUIT, KILL, TERM, USR1, USR2, STOP or CONT, to the command's process group"`
}

func (q Request) size() command.Size {
	s := command.Size{Cols: q.Cols, Rows: q.Rows}
	if s.Cols == 0 {
		s.Cols = 80
	}
	if s.Rows == 0 {
		s.Rows = 24
	}
	return s
}

// An Event is a text message to the client of a terminal: the start or end of the command, lost output, or an
// error.
type Event struct {
	Type  string         `json:"type" enum:"started,lost,exit,error"`
	Bytes int64          `json:"bytes,omitempty" doc:"of lost: how much output is left out here, because the caller read too slowly"`
	Exit  *command.Ended `json:"exit,omitempty" doc:"of exit"`
	Error any            `json:"error,omitempty" doc:"of error: a problem document"`
}

// Options are the functions and channels that a session of a terminal needs from the server, such as the
// function that starts the command.
type Options struct {
	// Start starts the command of the first message, which is JSON, in a terminal, with the sink for its output.
	Start func(ctx context.Context, message []byte, size command.Size, sink func(stream string, p []byte)) (x *command.Running, limit time.Duration, err error)
	// Problem returns an error as a caller gets it.
	Problem func(err error) any
	// Ending is closed when the server ends.
	Ending <-chan struct{}
	// Ping is the time between two pings; 0 for the usual.
	Ping time.Duration
}

// Check decides whether an HTTP request may become a session of a terminal. It returns 0, or the HTTP status
// and the reason of a refusal. It refuses a web page of another origin, because the browser would send the
// same cookie as for this server's own page.
func Check(r *http.Request) (status int, why string) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || r.ProtoMajor != 1 {
		return http.StatusUpgradeRequired, "this route is a WebSocket"
	}
	for _, text := range r.Header.Values("Origin") {
		if origin, err := url.Parse(text); err != nil || origin.Host == "" || !strings.EqualFold(origin.Host, r.Host) {
			return http.StatusForbidden, "a page of another origin cannot open a terminal here"
		}
	}
	return 0, ""
}

// Serve carries out the session of a command's terminal over a WebSocket for a request that [Check] has
// accepted, and returns at its end. When ctx ends, the session ends, because its client may not continue.
// Errors: a request that is no WebSocket handshake, which has been answered.
func Serve(ctx context.Context, w http.ResponseWriter, r *http.Request, o Options) error {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{Protocol}, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return err
	}
	defer c.CloseNow()             //nolint:errcheck // it has been closed, or its caller has gone
	c.SetReadLimit(4 * maxMessage) // beyond maxMessage the caller gets a close frame, beyond this a closed connection
	if o.Ping == 0 {
		o.Ping = pingTime
	}
	s := &session{c: c, o: o, feed: command.NewQueue(), input: make(chan []byte, maxInputs)}
	s.run(ctx)
	return nil
}

// A session is a command's terminal and the WebSocket connection to its client.
type session struct {
	c    *websocket.Conn
	o    Options
	feed *command.Queue
	x    *command.Running

	input   chan []byte
	mu      sync.Mutex
	waiting int // bytes of input that the command has not read
}

var errGone = errors.New("the caller has gone")

// refused returns the error with which a terminal's session ends before its command has started: the close
// status of the WebSocket and the reason.
func refused(status websocket.StatusCode, why string) error {
	return websocket.CloseError{Code: status, Reason: why}
}

func (s *session) run(permitted context.Context) {
	// Not with the context of the caller's permission: that ends, and the connection then has to say so.
	ctx, end := context.WithCancelCause(context.WithoutCancel(permitted))
	defer end(nil)
	defer context.AfterFunc(permitted, func() { end(refused(websocket.StatusPolicyViolation, "the token has expired or was removed")) })()
	go func() {
		select {
		case <-s.o.Ending:
			end(refused(websocket.StatusGoingAway, "the server ends"))
		case <-ctx.Done():
		}
	}()
	limit, err := s.start(ctx)
	if err != nil {
		s.refuse(ctx, err)
		return
	}
	last := Event{Type: "exit"}
	go func() {
		ended, err := s.x.Wait(ctx, limit)
		if last.Exit = &ended; err != nil {
			last = Event{Type: "error", Error: s.o.Problem(err)}
		}
		s.feed.End()
	}()
	go s.ping(ctx, end)
	go s.read(end)  // until the connection is closed
	go s.write(ctx) // or until no process has the terminal
	s.copy(ctx, end)
	s.finish(ctx, last)
}

// start reads the first message of the terminal's client and starts the command that it describes. limit is
// the command's time limit, or 0.
func (s *session) start(ctx context.Context) (limit time.Duration, err error) {
	first, done := context.WithTimeout(ctx, startTime)
	defer done()
	kind, data, err := s.receive(first)
	if err != nil {
		return 0, err
	}
	var q Request
	if kind != websocket.MessageText || json.Unmarshal(data, &q) != nil || q.Type != "start" {
		return 0, refused(websocket.StatusPolicyViolation, "the first message must be a JSON object of type start")
	}
	if err := q.size().Check(); err != nil {
		return 0, err
	}
	s.x, limit, err = s.o.Start(ctx, data, q.size(), s.feed.Add)
	if err != nil {
		return 0, err
	}
	if err := s.send(Event{Type: "started"}); err != nil {
		s.feed.End()
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err := s.x.Wait(ended, 0) // ends it
		return 0, errors.Join(errGone, err)
	}
	return limit, nil
}

// refuse sends the client the error because of which the command of a terminal was not started, and ends the
// session.
func (s *session) refuse(ctx context.Context, err error) {
	var why websocket.CloseError
	switch {
	case errors.As(context.Cause(ctx), &why), !errors.Is(err, errGone) && errors.As(err, &why):
		_ = s.c.Close(why.Code, why.Reason) // an error means that the caller has gone
	case errors.Is(err, errGone):
	default:
		_ = s.send(Event{Type: "error", Error: s.o.Problem(err)}) // as above
		_ = s.c.Close(websocket.StatusInternalError, "the command cannot run")
	}
}

// copy sends the output of the terminal's command to the client until the end of the command. It calls end if
// the client is gone.
func (s *session) copy(ctx context.Context, end context.CancelCauseFunc) {
	for {
		chunk, ok := s.feed.Next()
		if !ok {
			return
		}
		if ctx.Err() != nil {
			continue // the caller gets no more, and the command is being ended
		}
		var err error
		if chunk.Lost > 0 {
			err = s.send(Event{Type: "lost", Bytes: chunk.Lost})
		} else {
			err = s.message(websocket.MessageBinary, chunk.Data)
		}
		if err != nil {
			end(errGone)
		}
	}
}

// finish sends the client of the terminal the last event, which says how the session ended, and closes the
// connection.
func (s *session) finish(ctx context.Context, last Event) {
	var why websocket.CloseError
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &why):
		_ = s.c.Close(why.Code, why.Reason) // an error means that the caller has gone, here and below
	case cause != nil:
	case last.Type == "error":
		_ = s.send(last)
		_ = s.c.Close(websocket.StatusInternalError, "the command was ended")
	default:
		_ = s.send(last)
		_ = s.c.Close(websocket.StatusNormalClosure, "")
	}
}

func (s *session) send(e Event) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return s.message(websocket.MessageText, data)
}

func (s *session) message(kind websocket.MessageType, data []byte) error {
	late, done := context.WithTimeout(context.Background(), stallTime) // no other: it would close the connection at once
	defer done()
	return s.c.Write(late, kind, data)
}

// ping sends pings to the client of the terminal at regular intervals, and calls end if the client does not
// answer.
func (s *session) ping(ctx context.Context, end context.CancelCauseFunc) {
	tick := time.NewTicker(s.o.Ping)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		late, done := context.WithTimeout(ctx, stallTime)
		err := s.c.Ping(late)
		done()
		if err != nil && ctx.Err() == nil {
			end(errGone)
			return
		}
	}
}

// receive reads the next message of the terminal's client. Errors: errGone if the client is gone; a refusal
// of a message that is too long.
func (s *session) receive(ctx context.Context) (websocket.MessageType, []byte, error) {
	kind, data, err := s.c.Read(ctx)
	switch {
	case err != nil:
		return 0, nil, errGone
	case len(data) > maxMessage:
		return 0, nil, refused(websocket.StatusMessageTooBig, "a message has at most 256 KiB")
	}
	return kind, data, nil
}

// read handles the messages of the terminal's client until the connection ends; then it calls end with the
// reason.
func (s *session) read(end context.CancelCauseFunc) {
	for {
		kind, data, err := s.receive(context.Background()) // closing the connection ends it
		if err != nil {
			end(err)
			return
		}
		if kind == websocket.MessageBinary {
			err = s.take(data)
		} else {
			err = s.request(data)
		}
		if err != nil {
			end(refused(websocket.StatusPolicyViolation, short(err.Error())))
			return
		}
	}
}

// short returns text cut to the length that fits into the close frame of a WebSocket.
func short(text string) string {
	const most = 120
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

func (s *session) request(data []byte) error {
	var q Request
	if err := json.Unmarshal(data, &q); err != nil {
		return errors.New("a text message must be a JSON object")
	}
	switch q.Type {
	case "resize":
		return s.x.Resize(q.size())
	case "signal":
		return s.x.Signal(q.Signal)
	}
	return fmt.Errorf("no request has the type %.20q", q.Type)
}

// take queues data, input of the client, for the command in the terminal. It does not wait for the command,
// so that signals and pings are still handled. A full queue is an error.
func (s *session) take(data []byte) error {
	s.mu.Lock()
	s.waiting += len(data)
	full := s.waiting > maxInput
	s.mu.Unlock()
	if !full {
		select {
		case s.input <- data:
			return nil
		default:
		}
	}
	return errors.New("the command does not read its input, of which too much waits")
}

// write passes the client's queued input to the command in the terminal until ctx ends.
func (s *session) write(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case data := <-s.input:
			if _, err := s.x.Write(ctx, data); err != nil {
				if !errors.Is(err, errs.ErrClosed) {
					return
				}
			}
			s.mu.Lock()
			s.waiting -= len(data)
			s.mu.Unlock()
		}
	}
}
