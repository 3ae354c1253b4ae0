// Package problem turns the errors of snapfs into problem documents (RFC 9457), the errors of its HTTP API.
//
// Read [Of] first. A document has the HTTP status of the kind of its error, and the fields of the commands'
// --json errors.
package problem

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/errs"
)

// A Problem is an error in a response, of the type application/problem+json (RFC 9457). The routes return it
// to package huma, which writes it.
type Problem struct {
	Type   string `json:"type" doc:"about:blank: title is the text of the status"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty" doc:"the whole message"`

	Kind    string   `json:"kind,omitempty" doc:"as in the --json errors of the commands" example:"not found"`
	Op      string   `json:"op,omitempty" doc:"what was attempted"`
	Subject string   `json:"subject,omitempty" doc:"the sandbox or snapshot"`
	Path    string   `json:"path,omitempty"`
	Hints   []string `json:"hints,omitempty" doc:"commands that help"`
	Details any      `json:"details,omitempty" doc:"the conflicts and the changes that need approval, where these are the error"`

	Errors []*huma.ErrorDetail `json:"errors,omitempty" doc:"what is wrong with the request"`
}

// Error returns the whole message of the problem document, so that a Problem is a Go error.
func (p *Problem) Error() string { return p.Detail }

// GetStatus returns the HTTP status of the problem, for package huma.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType returns the media type of a problem document (RFC 9457), for package huma.
func (*Problem) ContentType(string) string { return "application/problem+json" }

// GetHeaders returns the response headers that the HTTP status of the error requires, such as Retry-After,
// for package huma.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	switch p.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="snapfs"`)
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	}
	return h
}

// Answer writes p as the response to a request.
func (p *Problem) Answer(w http.ResponseWriter) {
	for name, values := range p.GetHeaders() {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	p.write(w)
}

// Write writes p as the response to a request of package huma that is refused before its route handles it.
func (p *Problem) Write(ctx huma.Context) {
	for name, values := range p.GetHeaders() {
		for _, v := range values {
			ctx.SetHeader(name, v)
		}
	}
	ctx.SetHeader("Content-Type", p.ContentType(""))
	ctx.SetStatus(p.Status)
	p.write(ctx.BodyWriter())
}

// write writes p as one line of JSON. It ignores an error, which means that the client is gone.
func (p *Problem) write(w io.Writer) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(p) // see above
}

// statuses returns the HTTP status for each kind of error. The first kind in the list that an error matches
// decides.
func statuses() []struct {
	kind   error
	status int
} {
	return []struct {
		kind   error
		status int
	}{
		{errs.ErrInvalid, http.StatusBadRequest},
		{errs.ErrNotFound, http.StatusNotFound},
		{errs.ErrDenied, http.StatusForbidden},
		{errs.ErrReadOnly, http.StatusForbidden},
		{errs.ErrExists, http.StatusConflict},
		{errs.ErrBusy, http.StatusConflict},
		{errs.ErrConflict, http.StatusConflict},
		{errs.ErrDrifted, http.StatusConflict},
		{errs.ErrClosed, http.StatusConflict},
		{errs.ErrNotSupported, http.StatusUnprocessableEntity},
		{errs.ErrNoSpace, http.StatusInsufficientStorage},
		{errs.ErrInterrupted, http.StatusServiceUnavailable},
	}
}

// Of converts an error of snapfs into a Problem with the HTTP status of its kind.
func Of(err error) *Problem {
	var done *Problem
	if errors.As(err, &done) {
		return done
	}
	p := &Problem{Type: "about:blank", Detail: err.Error(), Hints: errs.HintsOf(err), Details: errs.DetailsOf(err), Status: http.StatusInternalServerError}
	var e *errs.Error
	if errors.As(err, &e) {
		p.Op, p.Subject, p.Path = e.Op, e.Subject, e.Path
	}
	kind := errs.KindOf(err)
	if kind != nil {
		p.Kind = kind.Error()
	}
	for _, s := range statuses() {
		if errors.Is(kind, s.kind) || kind == nil && errors.Is(err, s.kind) {
			p.Status = s.status
			break
		}
	}
	var command *engine.CommandError
	if errors.As(err, &command) { // a program that is not there is not the resource of the request
		p.Status = http.StatusUnprocessableEntity
	}
	switch code, _ := errs.ExitCode(err); code {
	case exitWall:
		p.Status = http.StatusForbidden
	case exitNoRoom:
		p.Status = http.StatusServiceUnavailable
	}
	p.Title = http.StatusText(p.Status)
	return p
}

// The exit statuses of snapfs commands for two errors that get an HTTP status of their own: a self-test broke
// out of the sandbox, and the host has no capacity for a sandbox. docs/exit-codes.md lists all.
const (
	exitWall   = 122
	exitNoRoom = 123
)

// Refused returns the Problem, the error document for the client, of a request that the server itself
// refuses. kind is the kind of the error, or nil; text is the message.
func Refused(status int, kind error, text string) *Problem {
	p := &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: text}
	if kind != nil {
		p.Kind = kind.Error()
	}
	return p
}

// Install makes package huma write its own errors, such as those of validation, as Problems too, in this
// whole process.
var Install = sync.OnceFunc(func() {
	huma.NewError = func(status int, text string, list ...error) huma.StatusError {
		p := Refused(status, nil, text)
		if status >= 400 && status < 500 {
			p.Kind = errs.ErrInvalid.Error()
		}
		for _, err := range list {
			var d huma.ErrorDetailer
			switch {
			case err == nil:
			case errors.As(err, &d):
				p.Errors = append(p.Errors, d.ErrorDetail())
			default:
				p.Errors = append(p.Errors, &huma.ErrorDetail{Message: err.Error()})
			}
		}
		return p
	}
})
