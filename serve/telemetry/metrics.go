package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/snapfs/snapfs/engine/events"
)

// A Metrics counts the events of a state directory, such as commands and promotions, for Prometheus. Its
// counters begin at zero when it is made. It is safe for concurrent use.
type Metrics struct {
	happened   *prometheus.CounterVec
	ended      *prometheus.CounterVec
	took       prometheus.Histogram
	decided    *prometheus.CounterVec
	reached    *prometheus.CounterVec
	changes    prometheus.Counter
	lastNumber prometheus.Gauge
}

// NewMetrics returns a Metrics whose counters of events are registered with r, which Prometheus reads.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
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
	r.MustRegister(m.happened, m.ended, m.took, m.decided, m.reached, m.changes, m.lastNumber)
	return m
}

// readPause is the least time between two reads of new events. Prometheus reads the counters only every few seconds.
const readPause = 250 * time.Millisecond

// Follow counts the events of the state directory state from now on until ctx ends, which is no error.
func (m *Metrics) Follow(ctx context.Context, state string) error {
	newest, err := events.Newest(state)
	if err != nil {
		return err
	}
	m.lastNumber.Set(float64(newest))
	return events.FollowEvery(ctx, state, newest, readPause, func(e events.Event) error { m.take(e); return nil })
}

// take counts the event e of a sandbox, such as a command's end, in the counters that it concerns.
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
