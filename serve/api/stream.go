package api

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// stallTime is how long a client may read nothing of a response, or send nothing of a file, before the
// connection is closed.
const stallTime = 30 * time.Second

// A writer writes a response. A client that reads nothing for stallTime is given up: from then on, and when
// the client is gone, each Write returns an error. It is safe for concurrent use.
type writer struct {
	mu      sync.Mutex
	w       io.Writer
	control *http.ResponseController
}

func newWriter(ctx huma.Context) *writer {
	_, w := humago.Unwrap(ctx)
	return &writer{w: ctx.BodyWriter(), control: http.NewResponseController(w)}
}

func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.control.SetWriteDeadline(time.Now().Add(stallTime)) // a connection without deadlines is a test's
	return w.w.Write(p)
}

// flush sends the data of the response that was written so far on to the client.
func (w *writer) flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.control.SetWriteDeadline(time.Now().Add(stallTime)) // see Write
	return w.control.Flush()
}

// stream returns a response for package huma whose content the function do writes, as long as that takes. When do
// returns, the client gets all that do has not flushed: a short response comes in one piece, with its length.
func stream(contentType string, do func(w *writer)) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		ctx.SetHeader("Content-Type", contentType)
		ctx.SetHeader("X-Content-Type-Options", "nosniff")
		ctx.SetHeader("Content-Security-Policy", "sandbox allow-scripts") // the page of a diff has a script
		ctx.SetHeader("Cache-Control", "no-store")
		do(newWriter(ctx))
	}}
}

// The HTTP media types of a result, and of the two forms of a stream of events.
const (
	jsonType   = "application/json"
	sseType    = "text/event-stream"
	ndjsonType = "application/x-ndjson"
)

// An eventWriter sends events to a client, each at once, as server-sent events or as lines of JSON.
type eventWriter struct {
	w   *writer
	sse bool
}

// send sends the event v. id and name are fields of a server-sent event; lines of JSON have no such fields,
// so v must hold them too.
func (e eventWriter) send(id, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	text := string(data) + "\n"
	if e.sse {
		text = ""
		if id != "" {
			text = "id: " + id + "\n"
		}
		text += "event: " + name + "\ndata: " + string(data) + "\n\n"
	}
	return e.push([]byte(text))
}

// push sends encoded events at once. Without data it sends an empty message, so that the server notices a
// connection whose client is gone.
func (e eventWriter) push(data []byte) error {
	if len(data) == 0 && e.sse {
		data = []byte(": \n\n")
	} else if len(data) == 0 {
		data = []byte("\n")
	}
	if _, err := e.w.Write(data); err != nil {
		return err
	}
	return e.w.flush()
}

// beatTime is the time between two checks, by an empty message, whether the client of a stream is still
// there.
const beatTime = 15 * time.Second

// accepts returns that of the offered media types that the Accept header of a request prefers, or the first.
func accepts(header string, offered ...string) string {
	best, quality := offered[0], 0.0
	for part := range strings.SplitSeq(header, ",") {
		kind, params, _ := strings.Cut(part, ";")
		q := 1.0
		if name, value, ok := strings.Cut(strings.TrimSpace(params), "="); ok && strings.TrimSpace(name) == "q" {
			if n, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil {
				q = n
			}
		}
		for _, o := range offered {
			if strings.EqualFold(strings.TrimSpace(kind), o) && q > quality {
				best, quality = o, q
			}
		}
	}
	return best
}

// schemaOf returns a reference to the JSON schema of v's type in the OpenAPI document, which describes the
// API.
func (a *API) schemaOf(v any) *huma.Schema {
	return a.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(v), true, "")
}
