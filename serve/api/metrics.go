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

// metrics count for Prometheus. Of sandboxes it has numbers and no names, which would be labels without an end.
type metrics struct {
	handler  http.Handler
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

// Labels of the metrics.
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

// Registry returns the registry whose metrics the route /metrics returns, for more of them.
func (a *API) Registry() prometheus.Registerer { return a.metrics.registry }

// observe counts a request that has been answered.
func (m *metrics) observe(op *huma.Operation, status int, stream bool, took time.Duration) {
	m.requests.WithLabelValues(op.OperationID, strconv.Itoa(status)).Inc()
	if !stream {
		m.seconds.WithLabelValues(op.OperationID).Observe(took.Seconds())
	}
}

// A stateCollector counts the contents of the state directory, which other processes change, at each scrape.
type stateCollector struct {
	a         *API
	sandboxes *prometheus.Desc
}

// Describe sends the description.
func (c *stateCollector) Describe(to chan<- *prometheus.Desc) { to <- c.sandboxes }

// Collect sends the numbers. Those that cannot be read are errors of the scrape.
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
