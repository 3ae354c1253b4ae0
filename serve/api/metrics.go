package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/serve/token"
)

// Registry returns the registry of the metrics that the route /metrics shows, so that a caller can add more.
func (a *API) Registry() prometheus.Registerer { return a.metrics.Registry() }

// countSandboxes returns how many sandboxes of the state directory are in which state.
func (a *API) countSandboxes(ctx context.Context) (map[string]int, error) {
	e, err := a.o.Open(ctx)
	if err != nil {
		return nil, err
	}
	count := map[string]int{"running": 0, "idle": 0}
	records, _ := e.Catalog().List() // a record that cannot be read is in no state
	for _, r := range records {
		if r.Supervisor != nil && proc.Alive(*r.Supervisor) {
			count["running"]++
		} else {
			count["idle"]++
		}
	}
	return count, nil
}

func (a *API) addMetrics() {
	add(a, route{
		scope: token.Read, method: http.MethodGet, path: "/metrics", id: "metrics", summary: "Return metrics for Prometheus",
		edit: func(op *huma.Operation) {
			op.Responses = map[string]*huma.Response{"200": {Description: "the metrics, in the text format of Prometheus", Content: map[string]*huma.MediaType{
				"text/plain": {Schema: &huma.Schema{Type: "string"}},
			}}}
		},
	}, func(context.Context, *struct{}) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			r, w := humago.Unwrap(ctx)
			a.metrics.ServeHTTP(w, r)
		}}, nil
	})
}
