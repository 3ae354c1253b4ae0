package problem

import (
	"net/http"
	"strings"

	"github.com/snapfs/snapfs/errs"
)

// Instead returns a response writer that writes to w, and replaces the text errors of http.ServeMux, such as
// 404, by problem documents.
func Instead(w http.ResponseWriter) http.ResponseWriter { return &replacer{ResponseWriter: w} }

// A replacer is the response writer that [Instead] returns.
type replacer struct {
	http.ResponseWriter

	instead bool
}

// WriteHeader sends the HTTP status to the client. For a text error of http.ServeMux, such as 404, it also
// sends a problem document (RFC 9457).
func (r *replacer) WriteHeader(status int) {
	h := r.Header()
	if (status == http.StatusNotFound || status == http.StatusMethodNotAllowed) && strings.HasPrefix(h.Get("Content-Type"), "text/plain") {
		kind := errs.ErrInvalid
		if status == http.StatusNotFound {
			kind = errs.ErrNotFound
		}
		doc := Refused(status, kind, "no route has this path and method; see /v1/openapi.json")
		h.Set("Content-Type", doc.ContentType(""))
		h.Del("Content-Length")
		r.ResponseWriter.WriteHeader(status)
		doc.write(r.ResponseWriter)
		r.instead = true
		return
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write sends data to the client, unless it is the text of an error that WriteHeader has replaced by a
// problem document.
func (r *replacer) Write(data []byte) (int, error) {
	if r.instead {
		return len(data), nil
	}
	return r.ResponseWriter.Write(data)
}

// Unwrap returns the wrapped response writer, by which an http.ResponseController finds the connection.
func (r *replacer) Unwrap() http.ResponseWriter { return r.ResponseWriter }
