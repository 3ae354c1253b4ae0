package api

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/problem"
	"github.com/snapfs/snapfs/serve/replay"
)

// replayHeader is the request header by which a client marks a request and its repetitions. If the first
// response was lost, the client repeats the request and gets the same response. Such a header has at most
// maxReplayKey bytes.
//
// After the server's end, when the responses are forgotten, a repeated promotion is refused by the fingerprint of
// its plan, and a repeated sandbox by its name.
const (
	replayHeader = "Idempotency-Key"
	maxReplayKey = 255
)

// replayed serves a request with an Idempotency-Key by calling next, and a repetition with the stored
// response to the first. It returns the response's HTTP status for the metrics, or 0 if ctx has it.
func (a *API) replayed(ctx huma.Context, key string, next func(huma.Context)) (status int) {
	r, w := humago.Unwrap(ctx)
	if len(key) > maxReplayKey {
		problem.Refused(http.StatusBadRequest, errs.ErrInvalid, replayHeader+" has at most 255 bytes").Write(ctx)
		return 0
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // as package huma does
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		p := problem.Refused(http.StatusBadRequest, errs.ErrInvalid, "the body did not come whole")
		if long := (*http.MaxBytesError)(nil); errors.As(err, &long) {
			p = problem.Refused(http.StatusRequestEntityTooLarge, errs.ErrInvalid, "the body is larger than 1 MiB")
		}
		p.Write(ctx)
		return 0
	}
	id := sha256.Sum256([]byte(strings.Join([]string{r.Header.Get("Authorization"), r.Method, r.URL.RequestURI(), key}, "\x00")))
	known, first := a.replays.Find(id, sha256.Sum256(body))
	switch {
	case known == nil:
		problem.Refused(http.StatusServiceUnavailable, errs.ErrBusy, "this server remembers too many requests with "+replayHeader).Write(ctx)
	case first:
		r.Body = io.NopCloser(bytes.NewReader(body))
		rec := &replay.Recorder{ResponseWriter: w}
		defer a.replays.Finish(id, known, rec)
		next(humago.NewContext(ctx.Operation(), r.WithContext(ctx.Context()), rec)) // which ends with the token
		return rec.Status()
	case known.Body != sha256.Sum256(body):
		problem.Refused(http.StatusUnprocessableEntity, errs.ErrInvalid, "another request had this "+replayHeader).Write(ctx)
	default:
		a.repeat(ctx, known)
	}
	return 0
}

// repeat answers a repetition of the request r with the response to r. If r is still being served, repeat
// waits.
func (a *API) repeat(ctx huma.Context, r *replay.Response) {
	select {
	case <-r.Done():
	case <-ctx.Context().Done():
		return
	}
	if r.Status == 0 {
		problem.Refused(http.StatusConflict, errs.ErrInterrupted, "the request that had this "+replayHeader+" has no response that can be repeated; send it with another key").Write(ctx)
		return
	}
	for name, values := range r.Header {
		for _, v := range values {
			ctx.SetHeader(name, v)
		}
	}
	ctx.SetHeader("Idempotency-Replayed", "true")
	ctx.SetStatus(r.Status)
	_, _ = ctx.BodyWriter().Write(r.Data) // an error means that the caller has gone
}
