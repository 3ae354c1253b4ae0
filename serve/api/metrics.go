package api

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/serve/token"
)

// A metrics counts requests and sandboxes for Prometheus. Names of sandboxes are not among its labels,
// because their number is unbounded.
type metrics struct {
	handler  http.Handler
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

// The names of the labels of the API's metrics for Prometheus, such as the route of a request.
const (
	routeLabel  = "route"
	statusLabel = "status"
	stateLabel  = "state"
)

func newMetrics(a *API) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "snapfs_http_requests_total", Help: "Answered requests."}, []string{routeLabel, statusLabel}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "snapfs_http_request_duration_seconds", Help: "Duration of requests that are no streams.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{routeLabel}),
	}
	r := prometheus.NewRegistry()
	r.MustRegister(m.requests, m.seconds, &stateCollector{
		a:         a,
		sandboxes: prometheus.NewDesc("snapfs_sandboxes", "Sandboxes of the state directory.", []string{stateLabel}, nil),
	}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry = r
	m.handler = promhttp.HandlerFor(r, promhttp.HandlerOpts{})
	return m
}

// Registry returns the registry of the metrics that the route /metrics shows, so that a caller can add more.
func (a *API) Registry() prometheus.Registerer { return a.metrics.registry }

// observe counts an answered request for the metrics, with its status, and with its duration unless it is a
// stream.
func (m *metrics) observe(op *huma.Operation, status int, stream bool, took time.Duration) {
	m.requests.WithLabelValues(op.OperationID, strconv.Itoa(status)).Inc()
	if !stream {
		m.seconds.WithLabelValues(op.OperationID).Observe(took.Seconds())
	}
}

// A stateCollector counts the sandboxes in the state directory at each scrape by Prometheus, because other
// processes make and remove them.
type stateCollector struct {
	a         *API
	sandboxes *prometheus.Desc
}

// Describe sends the descriptions of the collector's metrics, for package prometheus.
func (c *stateCollector) Describe(to chan<- *prometheus.Desc) { to <- c.sandboxes }

// Collect counts the sandboxes and sends the numbers, for package prometheus. If they cannot be read, the
// scrape gets the error.
func (c *stateCollector) Collect(to chan<- prometheus.Metric) {
	e, err := c.a.o.Open(context.Background())
	if err != nil {
		to <- prometheus.NewInvalidMetric(c.sandboxes, err)
		return
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
	for state, n := range count {
		to <- prometheus.MustNewConstMetric(c.sandboxes, prometheus.GaugeValue, float64(n), state)
	}
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
			a.metrics.handler.ServeHTTP(w, r)
		}}, nil
	})
}
