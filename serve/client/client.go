package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
)

// NDJSON is the media type of a stream of events, one JSON object in each line: the value of the parameter Accept
// for responses that [Stream] reads.
const NDJSON = "application/x-ndjson"

// AtSocket returns a client of the server that listens on the unix socket at path. Its user is the one of this
// process, who needs no token there.
func AtSocket(path string, options ...ClientOption) (*ClientWithResponses, error) {
	connect := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	transport := WithHTTPClient(&http.Client{Transport: &http.Transport{DialContext: connect}})
	return NewClientWithResponses("http://snapfs", append([]ClientOption{transport}, options...)...)
}

// Token makes a client send the token text, which `snapfs token new` printed, with each request.
func Token(text string) ClientOption {
	return WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+text)
		return nil
	})
}

// Error returns the whole message of the problem document, so that a Problem is a Go error.
func (p *Problem) Error() string { return cmp.Or(p.Detail, p.Title) }

// A Reply is the result of each method whose name ends in WithResponse: the HTTP status and, after an error,
// the problem document of the server. [Err] reads it.
type Reply interface {
	StatusCode() int
	Status() string
	GetApplicationproblemJSONDefault() *Problem
}

// Err returns nil if the server did what a request asked for. It takes both results of the method that sent the
// request. Errors: err, if it is not nil; a *[Problem] with the server's reason; and, for a response that is not
// from snapfs, an error with its status.
func Err(r Reply, err error) error {
	switch {
	case err != nil:
		return err
	case r.StatusCode() < http.StatusBadRequest:
		return nil
	case r.GetApplicationproblemJSONDefault() != nil:
		return r.GetApplicationproblemJSONDefault()
	}
	return fmt.Errorf("the server answered %s", r.Status())
}

// Stream returns the events of a response, each a line of JSON, until the server ends the response. It takes both
// results of a method that sent a request with Accept: [NDJSON], and closes the response when the loop ends, which
// ends a command that is still running. An error is the last pair: err; a *[Problem]; or a connection that broke.
func Stream[E any](r *http.Response, err error) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		var none E
		if err != nil {
			yield(none, err)
			return
		}
		defer func() { _ = r.Body.Close() }() // what was read of it counts
		events := json.NewDecoder(r.Body)
		if r.StatusCode >= http.StatusBadRequest {
			p := &Problem{}
			if err := events.Decode(p); err != nil || p.Status == 0 {
				yield(none, fmt.Errorf("the server answered %s", r.Status))
				return
			}
			yield(none, p)
			return
		}
		for {
			var e E
			err := events.Decode(&e)
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}
