package telemetry

import (
	"context"
	"os"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// A delivery sends spans (timed operations) to a collector in batches, and counts those that the collector has
// taken and those that were dropped. No caller waits for the collector: a span that comes while limit others
// wait is dropped.
type delivery struct {
	sdktrace.SpanProcessor // makes the batches

	limit         int64
	report        func(string)
	sent, dropped prometheus.Counter

	mu      sync.Mutex // guards what follows
	waiting int64      // the spans in the queue, and those of the batch that is being sent
	ended   bool       // Shutdown has counted those that still waited
}

// newDelivery returns a delivery that sends by the exporter, registers its counts with r, and calls report with the
// cause when the collector begins to take no spans. Up to OTEL_BSP_MAX_QUEUE_SIZE spans wait, 2048 by default.
func newDelivery(exporter sdktrace.SpanExporter, r prometheus.Registerer, report func(string)) *delivery {
	d := &delivery{
		report: report, limit: sdktrace.DefaultMaxQueueSize,
		sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "snapfs_spans_sent_total", Help: "Spans that the OpenTelemetry collector has taken.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "snapfs_spans_dropped_total", Help: "Spans that were dropped, because the OpenTelemetry collector was away, slow, or refused them.",
		}),
	}
	if n, err := strconv.ParseInt(os.Getenv("OTEL_BSP_MAX_QUEUE_SIZE"), 10, 32); err == nil && n > 0 {
		d.limit = n
	}
	r.MustRegister(d.sent, d.dropped)
	// The queue of the batches holds at least limit spans, so it never drops one, which would not be counted.
	d.SpanProcessor = sdktrace.NewBatchSpanProcessor(&counted{SpanExporter: exporter, delivery: d})
	return d
}

// OnEnd puts a span into the queue, or drops it if the queue is full.
func (d *delivery) OnEnd(s sdktrace.ReadOnlySpan) {
	if d.admits() {
		d.SpanProcessor.OnEnd(s)
	} else {
		d.dropped.Inc()
	}
}

// admits reports whether the queue takes another span, which then counts as waiting.
func (d *delivery) admits() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended || d.waiting >= d.limit {
		return false
	}
	d.waiting++
	return true
}

// count counts n spans, which waited until now, with the counter to. It does nothing after the end of Shutdown, which
// has counted them.
func (d *delivery) count(n int, to prometheus.Counter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ended {
		d.waiting -= int64(n)
		to.Add(float64(n))
	}
}

// Shutdown sends the spans that wait until ctx ends, and counts those that still wait then as dropped. The caller calls
// it after the last span has ended.
func (d *delivery) Shutdown(ctx context.Context) error {
	err := d.SpanProcessor.Shutdown(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dropped.Add(float64(d.waiting))
	d.waiting, d.ended = 0, true
	return err
}

// A counted sends batches of spans to a collector for a [delivery], and counts them.
type counted struct {
	sdktrace.SpanExporter

	delivery *delivery
	failing  bool // the last batch was dropped
}

// ExportSpans sends a batch of spans from the queue. A batch that the collector does not take is dropped, which
// is no error. The caller makes one call at a time.
func (c *counted) ExportSpans(ctx context.Context, batch []sdktrace.ReadOnlySpan) error {
	d, n := c.delivery, len(batch)
	err := c.SpanExporter.ExportSpans(ctx, batch)
	if err == nil {
		d.count(n, d.sent)
	} else {
		d.count(n, d.dropped)
		if !c.failing {
			d.report("spans are dropped: " + err.Error())
		}
	}
	c.failing = err != nil
	return nil
}
