// Package metrics counts the requests and the sandboxes of a server for Prometheus.
//
// Names of sandboxes are not among the labels, because their number is unbounded. The caller counts the sandboxes.
package metrics

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A Metrics counts requests and sandboxes. It answers an HTTP request with the numbers, in the text format of
// Prometheus.
type Metrics struct {
	http.Handler

	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

// The names of the labels, such as the route of a request.
const (
	routeLabel  = "route"
	statusLabel = "status"
	stateLabel  = "state"
)

// New returns the metrics of a server. At each scrape count returns the number of sandboxes in each state; its error
// goes to the scrape.
func New(count func(context.Context) (map[string]int, error)) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "snapfs_http_requests_total", Help: "Answered requests."}, []string{routeLabel, statusLabel}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "snapfs_http_request_duration_seconds", Help: "Duration of requests that are no streams.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{routeLabel}),
		registry: prometheus.NewRegistry(),
	}
	m.registry.MustRegister(m.requests, m.seconds, &stateCollector{
		count:     count,
		sandboxes: prometheus.NewDesc("snapfs_sandboxes", "Sandboxes of the state directory.", []string{stateLabel}, nil),
	}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.Handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
	return m
}

// Registry returns the registry of the metrics, so that a caller can add more.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Observe counts an answered request to the route, with its status, and with its duration unless it is a stream.
func (m *Metrics) Observe(route string, status int, stream bool, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	if !stream {
		m.seconds.WithLabelValues(route).Observe(took.Seconds())
	}
}

// A stateCollector counts the sandboxes at each scrape, because other processes make and remove them.
type stateCollector struct {
	count     func(context.Context) (map[string]int, error)
	sandboxes *prometheus.Desc
}

// Describe sends the descriptions of the collector's metrics, for package prometheus.
func (c *stateCollector) Describe(to chan<- *prometheus.Desc) { to <- c.sandboxes }

// Collect counts the sandboxes and sends the numbers, for package prometheus.
func (c *stateCollector) Collect(to chan<- prometheus.Metric) {
	count, err := c.count(context.Background())
	if err != nil {
		to <- prometheus.NewInvalidMetric(c.sandboxes, err)
		return
	}
	for state, n := range count {
		to <- prometheus.MustNewConstMetric(c.sandboxes, prometheus.GaugeValue, float64(n), state)
	}
}
