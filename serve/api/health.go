package api

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
)

// writeJSON writes v as one line of JSON, the response to a client. It ignores an error, which means that the
// client is gone.
func writeJSON(w io.Writer, v any) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // see above
}

type healthOutput struct {
	Body struct {
		Status  string `json:"status" enum:"ok"`
		Version string `json:"version" doc:"of the server's program"`
	}
}

func (a *API) addHealth() {
	add(a, route{method: http.MethodGet, path: "/healthz", id: "health", summary: "Report that the server answers"},
		func(context.Context, *struct{}) (*healthOutput, error) {
			out := &healthOutput{}
			out.Body.Status, out.Body.Version = "ok", a.o.Version
			return out, nil
		})
	a.mux.HandleFunc("GET /v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		doc, err := a.Document()
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.oai.openapi+json;version=3.1")
		_, _ = w.Write(doc) // an error means that the caller has gone
	})
}
