package api

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/snapfs/snapfs/errs"
)

// replayHeader is the request header by which a client marks a request and its repetitions. If the first
// response was lost, the client repeats the request and gets the same response.
const replayHeader = "Idempotency-Key"

// Bounds of the responses that are remembered for repeated requests: for how long, how many (then a new key
// is refused), the bytes of a response (a longer one is not remembered), and the bytes of a key. They are
// forgotten when the server ends.
const (
	replayTime   = 10 * time.Minute
	maxReplays   = 1000
	maxReplayed  = 256 << 10
	maxReplayKey = 255
)

// A replays remembers the responses to requests with an Idempotency-Key, so that a repetition does nothing
// twice. It is in memory only. After the server's end, a repeated promotion is refused by the fingerprint of
// its plan, and a repeated sandbox by its name.
type replays struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]*replay
}

// A replay is a request with an Idempotency-Key, which the client may repeat, and, once done is closed, its
// response.
type replay struct {
	body  [sha256.Size]byte
	began time.Time
	done  chan struct{}

	status int // 0 if the response cannot be repeated
	header http.Header
	data   []byte
}

// find returns the replay of the request with this key, which holds the response for its repetitions, or nil
// if too many are remembered. first is set if the key is new: then the caller serves the request and calls
// finish. body is the hash of the request's body.
func (s *replays) find(key, body [sha256.Size]byte) (r *replay, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for k, old := range s.known {
		if now.Sub(old.began) > replayTime && old.ended() {
			delete(s.known, k)
		}
	}
	if r, ok := s.known[key]; ok {
		return r, false
	}
	if len(s.known) >= maxReplays {
		return nil, false
	}
	r = &replay{body: body, began: now, done: make(chan struct{})}
	if s.known == nil {
		s.known = map[[sha256.Size]byte]*replay{}
	}
	s.known[key] = r
	return r, true
}

func (r *replay) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// finish stores the response that w has recorded, for repetitions of the request r. It forgets a server
// error, after which the client must try again, a stream, and a response that is too long.
func (s *replays) finish(key [sha256.Size]byte, r *replay, w *recorder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(r.done)
	if w.status == 0 || w.status >= http.StatusInternalServerError || w.long || strings.HasPrefix(w.Header().Get("Content-Type"), "text/") ||
		w.Header().Get("Content-Type") == ndjsonType {
		delete(s.known, key)
		return
	}
	r.status, r.header, r.data = w.status, w.Header().Clone(), w.data.Bytes()
}

// A recorder is a response writer that also stores the response, for repetitions of the request.
type recorder struct {
	http.ResponseWriter
	status int
	data   bytes.Buffer
	long   bool
}

// WriteHeader stores the status of the response, for repetitions of the request, and sends it.
func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Write sends the data of the response and stores it, for repetitions of the request. A response of more than
// maxReplayed bytes is not stored.
func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	if r.long = r.long || r.data.Len()+len(p) > maxReplayed; !r.long {
		r.data.Write(p)
	}
	return r.ResponseWriter.Write(p)
}

// Unwrap returns the wrapped response writer, by which an http.ResponseController finds the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// replayed serves a request with an Idempotency-Key by calling next, and a repetition with the stored
// response to the first. It returns the response's HTTP status for the metrics, or 0 if ctx has it.
func (a *API) replayed(ctx huma.Context, key string, next func(huma.Context)) (status int) {
	r, w := humago.Unwrap(ctx)
	if len(key) > maxReplayKey {
		writeProblem(ctx, refused(http.StatusBadRequest, errs.ErrInvalid, replayHeader+" has at most 255 bytes"))
		return 0
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // as package huma does
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		p := refused(http.StatusBadRequest, errs.ErrInvalid, "the body did not come whole")
		if long := (*http.MaxBytesError)(nil); errors.As(err, &long) {
			p = refused(http.StatusRequestEntityTooLarge, errs.ErrInvalid, "the body is larger than 1 MiB")
		}
		writeProblem(ctx, p)
		return 0
	}
	id := sha256.Sum256([]byte(strings.Join([]string{r.Header.Get("Authorization"), r.Method, r.URL.RequestURI(), key}, "\x00")))
	known, first := a.replays.find(id, sha256.Sum256(body))
	switch {
	case known == nil:
		writeProblem(ctx, refused(http.StatusServiceUnavailable, errs.ErrBusy, "this server remembers too many requests with "+replayHeader))
	case first:
		r.Body = io.NopCloser(bytes.NewReader(body))
		rec := &recorder{ResponseWriter: w}
		defer a.replays.finish(id, known, rec)
		next(humago.NewContext(ctx.Operation(), r.WithContext(ctx.Context()), rec)) // which ends with the token
		return rec.status
	case known.body != sha256.Sum256(body):
		writeProblem(ctx, refused(http.StatusUnprocessableEntity, errs.ErrInvalid, "another request had this "+replayHeader))
	default:
		a.repeat(ctx, known)
	}
	return 0
}

// repeat answers a repetition of the request r with the response to r. If r is still being served, repeat
// waits.
func (a *API) repeat(ctx huma.Context, r *replay) {
	select {
	case <-r.done:
	case <-ctx.Context().Done():
		return
	}
	if r.status == 0 {
		writeProblem(ctx, refused(http.StatusConflict, errs.ErrInterrupted, "the request that had this "+replayHeader+" has no response that can be repeated; send it with another key"))
		return
	}
	for name, values := range r.header {
		for _, v := range values {
			ctx.SetHeader(name, v)
		}
	}
	ctx.SetHeader("Idempotency-Replayed", "true")
	ctx.SetStatus(r.status)
	_, _ = ctx.BodyWriter().Write(r.data) // an error means that the caller has gone
}
