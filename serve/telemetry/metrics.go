package telemetry

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/snapfs/snapfs/engine/events"
)

// Counts are numbers of the moment.
type Counts struct {
	// Sandboxes is how many exist, and Running in how many of them processes run.
	Sandboxes, Running int
}

// Metrics counts what happens in a state directory, for Prometheus. Counters begin at zero with it. It is safe for
// concurrent use.
type Metrics struct {
	registry   *prometheus.Registry
	happened   *prometheus.CounterVec
	ended      *prometheus.CounterVec
	took       prometheus.Histogram
	decided    *prometheus.CounterVec
	reached    *prometheus.CounterVec
	changes    prometheus.Counter
	lastNumber prometheus.Gauge
}

// counting bounds the time in which a scrape counts sandboxes.
const counting = 2 * time.Second

// NewMetrics returns Metrics. Each scrape calls count, which must return when its context ends; after an error
// the scrape has no number of sandboxes.
func NewMetrics(count func(ctx context.Context) (Counts, error)) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		happened: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "snapfs_events_total", Help: "Events of the state directory, by the type of docs/events.md.",
		}, []string{"type"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "snapfs_commands_ended_total", Help: "Commands that ended, by result: success is status 0, signal is 128 and more.",
		}, []string{"result"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "snapfs_command_duration_seconds", Help: "How long commands ran.",
			Buckets: []float64{.005, .025, .1, .5, 2.5, 10, 60, 300, 1800, 7200},
		}),
		decided: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "snapfs_network_decisions_total", Help: "Decisions of the network proxy. Each destination counts once in the life of a container.",
		}, []string{"decision"}),
		reached: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "snapfs_limits_reached_total", Help: "Limits that commands reached, by limit.",
		}, []string{"limit"}),
		changes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "snapfs_promoted_changes_total", Help: "Paths that promotions changed.",
		}),
		lastNumber: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "snapfs_last_event_number", Help: "The number of the newest event that the metrics contain.",
		}),
	}
	m.registry.MustRegister(m.happened, m.ended, m.took, m.decided, m.reached, m.changes, m.lastNumber, &counter{count},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler answers a scrape with all metrics, in the format that the request prefers.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// Follow counts the events of a state directory from now on until ctx ends, which is no error.
func (m *Metrics) Follow(ctx context.Context, state string) error {
	newest, err := events.Newest(state)
	if err != nil {
		return err
	}
	m.lastNumber.Set(float64(newest))
	return events.Follow(ctx, state, newest, func(e events.Event) error { m.take(e); return nil })
}

// take counts an event.
func (m *Metrics) take(e events.Event) {
	m.happened.WithLabelValues(e.Type).Inc()
	if n := max(e.Number(), e.Data.Last); n > 0 {
		m.lastNumber.Set(float64(n))
	}
	switch e.Type {
	case events.CommandEnded:
		m.ended.WithLabelValues(resultOf(e.Data.Status)).Inc()
		m.took.Observe(e.Data.Seconds)
	case events.NetworkAllowed:
		m.decided.WithLabelValues("allowed").Inc()
	case events.NetworkRefused:
		m.decided.WithLabelValues("refused").Inc()
	case events.LimitReached:
		m.reached.WithLabelValues(e.Data.Limit).Inc()
	case events.ChangesPromoted:
		m.changes.Add(float64(e.Data.Changes))
	}
}

func resultOf(status *int) string {
	switch {
	case status == nil:
		return "unknown"
	case *status == 0:
		return "success"
	case *status >= 128:
		return "signal"
	}
	return "failure"
}

// A counter counts sandboxes when Prometheus asks.
type counter struct {
	count func(ctx context.Context) (Counts, error)
}

var (
	sandboxesDesc = prometheus.NewDesc("snapfs_sandboxes", "Sandboxes that exist.", nil, nil)
	runningDesc   = prometheus.NewDesc("snapfs_sandboxes_running", "Sandboxes in which processes run.", nil, nil)
)

// Describe and Collect make a counter a prometheus.Collector.
func (c *counter) Describe(out chan<- *prometheus.Desc) {
	out <- sandboxesDesc
	out <- runningDesc
}

// Collect counts the sandboxes.
func (c *counter) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), counting)
	defer cancel()
	n, err := c.count(ctx)
	if err != nil {
		return
	}
	out <- prometheus.MustNewConstMetric(sandboxesDesc, prometheus.GaugeValue, float64(n.Sandboxes))
	out <- prometheus.MustNewConstMetric(runningDesc, prometheus.GaugeValue, float64(n.Running))
}
