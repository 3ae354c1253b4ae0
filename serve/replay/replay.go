// Package replay remembers the responses of a server to requests that a client marks by a key of its own, so that a
// repeated request, after a response that was lost, gets the same response and does nothing twice.
//
// The caller makes a key unique among clients, and sends the stored response.
package replay

import (
	"bytes"
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of the responses that are remembered: for how long, how many (then a new key is refused), and the bytes of a
// response (a longer one is not remembered). They are forgotten when the server ends.
const (
	keepTime  = 10 * time.Minute
	maxCount  = 1000
	maxLength = 256 << 10
)

// A Sum identifies a request, or its body: the hash of it.
type Sum = [sha256.Size]byte

// A Store remembers the responses. It is in memory only. The zero value is empty, and its methods are safe for
// concurrent use.
type Store struct {
	// Streams are the content types of responses, besides texts, that are never remembered.
	Streams []string

	mu    sync.Mutex
	known map[Sum]*Response
}

// A Response is the response to a request that the client may repeat. Its fields but Body are valid once Done is
// closed.
type Response struct {
	// Body is the hash of the request's body.
	Body Sum
	// Status is 0 if the response cannot be repeated.
	Status int
	Header http.Header
	Data   []byte

	began time.Time
	done  chan struct{}
}

// Done returns a channel that is closed once the request was served.
func (r *Response) Done() <-chan struct{} { return r.done }

// Find returns the response to the request with this key, or nil if too many are remembered. first is set if the key is
// new: then the caller serves the request and calls Finish. body is the hash of the request's body.
func (s *Store) Find(key, body Sum) (r *Response, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for k, old := range s.known {
		if now.Sub(old.began) > keepTime && old.ended() {
			delete(s.known, k)
		}
	}
	if r, ok := s.known[key]; ok {
		return r, false
	}
	if len(s.known) >= maxCount {
		return nil, false
	}
	r = &Response{Body: body, began: now, done: make(chan struct{})}
	if s.known == nil {
		s.known = map[Sum]*Response{}
	}
	s.known[key] = r
	return r, true
}

func (r *Response) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// Finish stores in r the response that w has recorded. It forgets a server error, after which the client must try
// again, a stream, and a response that is too long.
func (s *Store) Finish(key Sum, r *Response, w *Recorder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(r.done)
	kind := w.Header().Get("Content-Type")
	if w.status == 0 || w.status >= http.StatusInternalServerError || w.long || strings.HasPrefix(kind, "text/") || slices.Contains(s.Streams, kind) {
		delete(s.known, key)
		return
	}
	r.Status, r.Header, r.Data = w.status, w.Header().Clone(), w.data.Bytes()
}

// A Recorder is a response writer that also stores the response, for repetitions of the request.
type Recorder struct {
	http.ResponseWriter

	status int
	data   bytes.Buffer
	long   bool
}

// Status returns the status of the response, or 0 before it is known.
func (r *Recorder) Status() int { return r.status }

// WriteHeader stores the status of the response and sends it.
func (r *Recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Write sends the data of the response and stores it, unless it is too long.
func (r *Recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	if r.long = r.long || r.data.Len()+len(p) > maxLength; !r.long {
		r.data.Write(p)
	}
	return r.ResponseWriter.Write(p)
}

// Unwrap returns the wrapped response writer, by which an http.ResponseController finds the connection.
func (r *Recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
