package telemetry

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	wire "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/errs"
)

// A receiver is a collector of spans.
type receiver struct {
	mu    sync.Mutex
	spans []*wire.Span
	raw   strings.Builder
	came  chan struct{} // gets a value after spans came
}

// newReceiver starts a receiver that the environment names.
func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{came: make(chan struct{}, 1)}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	var message collector.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(body, &message) != nil || q.URL.Path != "/v1/traces" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.raw.Write(body)
	for _, about := range message.GetResourceSpans() {
		for _, scope := range about.GetScopeSpans() {
			r.spans = append(r.spans, scope.GetSpans()...)
		}
	}
	r.mu.Unlock()
	select {
	case r.came <- struct{}{}:
	default:
	}
}

// named returns the spans with a name.
func (r *receiver) named(name string) []*wire.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.spans), func(s *wire.Span) bool { return s.GetName() != name })
}

// tracing calls Trace, and returns once it sends what happens. end ends it and waits.
func tracing(t *testing.T, r *receiver, state string, log *events.Log) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Trace(ctx, state, "v1", prometheus.NewRegistry(), func(text string) { t.Error(text) })
	}()
	for before := len(r.named(events.DriftFound)); len(r.named(events.DriftFound)) == before; {
		log.Append(events.Event{Type: events.DriftFound, Subject: "other", SandboxID: "other"})
		select {
		case <-r.came:
		case <-time.After(50 * time.Millisecond):
		}
	}
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A sandbox is one trace, also if its spans are sent by two servers, and no argument of a command is sent.
// Cost: 0.3 s.
func TestASandboxIsOneTrace(t *testing.T) {
	state, r := t.TempDir(), newReceiver(t)
	log := events.New(state, func(text string) { t.Error(text) }, nil)
	tell := func(kind string, d events.Data) {
		log.Append(events.Event{Type: kind, Subject: "fix", SandboxID: "b1", Data: d})
	}
	tell(events.SandboxCreated, events.Data{Workspace: "/w"})
	tell(events.SnapshotCreated, events.Data{Name: "before"})
	end := tracing(t, r, state, log)
	if got := r.named(events.SnapshotCreated); len(got) != 0 {
		t.Errorf("spans of what happened before: %v", got)
	}
	tell(events.CommandStarted, events.Data{Run: "1", Command: []string{"/usr/bin/curl", "-u", "ada:hunter2"}})
	end()
	end = tracing(t, r, state, log)
	status := 22
	tell(events.NetworkRefused, events.Data{Host: "example.org", Port: 443, Reason: "no rule"})
	tell(events.CommandEnded, events.Data{Run: "1", Status: &status, Seconds: 1})
	tell(events.CommandStarted, events.Data{Run: "2", Command: []string{"sleep"}})
	tell(events.SandboxRemoved, events.Data{})
	end()

	root := r.named("snapfs.sandbox")
	commands := r.named("snapfs.command")
	refused := r.named(events.NetworkRefused)
	if len(root) != 1 || len(commands) != 2 || len(refused) != 1 {
		t.Fatalf("%d sandboxes, %d commands, %d refusals", len(root), len(commands), len(refused))
	}
	for _, s := range append(commands, refused...) {
		if string(s.GetTraceId()) != string(root[0].GetTraceId()) || string(s.GetParentSpanId()) != string(root[0].GetSpanId()) {
			t.Errorf("%s is not below the sandbox", s.GetName())
		}
	}
	if len(root[0].GetParentSpanId()) != 0 || root[0].GetStartTimeUnixNano() >= root[0].GetEndTimeUnixNano() {
		t.Errorf("the sandbox's span: %v", root[0])
	}
	if got := commands[0].GetStatus().GetCode(); got != wire.Status_STATUS_CODE_ERROR {
		t.Errorf("a command with status 22 has %v", got)
	}
	if got := commands[1].GetStatus().GetMessage(); !strings.Contains(got, "unseen") {
		t.Errorf("a command whose end is unknown has %q", got)
	}
	if raw := r.raw.String(); strings.Contains(raw, "hunter2") || !strings.Contains(raw, "curl") {
		t.Error("the spans have an argument, or not the program")
	}
}

// A collector that is away ends nothing. Cost: milliseconds.
func TestACollectorThatIsAwayIsNoError(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "50")
	if !Wanted() {
		t.Error("a collector is named, and not wanted")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Trace(ctx, t.TempDir(), "v1", prometheus.NewRegistry(), func(text string) { t.Error(text) }); err != nil {
		t.Error(err)
	}
}

// What happens is counted, by rules of Prometheus for names. Cost: milliseconds.
func TestMetricsCountWhatHappens(t *testing.T) {
	state := t.TempDir()
	log := events.New(state, func(text string) { t.Error(text) }, nil)
	log.Append(events.Event{Type: events.SandboxCreated})
	r := prometheus.NewRegistry()
	m := NewMetrics(r)
	zero, two, killed := 0, 2, 137
	all := []events.Event{
		{Type: events.NetworkAllowed},
		{Type: events.LimitReached, Data: events.Data{Limit: "memory"}},
		{Type: events.ChangesPromoted, Data: events.Data{Changes: 7}},
	}
	for _, status := range []*int{&zero, &two, &killed, nil} {
		all = append(all, events.Event{Type: events.CommandEnded, Data: events.Data{Status: status, Seconds: 0.2}})
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Follow(ctx, state) }()
	for testutil.ToFloat64(m.lastNumber) < 1 { // it has begun
		time.Sleep(time.Millisecond)
	}
	for _, e := range all {
		log.Append(e)
	}
	for testutil.ToFloat64(m.lastNumber) < 8 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	want := `
# HELP snapfs_commands_ended_total Commands that ended, by result: success is status 0, signal is 128 and more.
# TYPE snapfs_commands_ended_total counter
snapfs_commands_ended_total{result="failure"} 1
snapfs_commands_ended_total{result="signal"} 1
snapfs_commands_ended_total{result="success"} 1
snapfs_commands_ended_total{result="unknown"} 1
# HELP snapfs_promoted_changes_total Paths that promotions changed.
# TYPE snapfs_promoted_changes_total counter
snapfs_promoted_changes_total 7
`
	names := []string{"snapfs_commands_ended_total", "snapfs_promoted_changes_total"}
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// A hung is a collector that takes no spans until it is released.
type hung struct {
	release chan struct{}
	taken   atomic.Int64
}

func (h *hung) ExportSpans(ctx context.Context, batch []sdktrace.ReadOnlySpan) error {
	select {
	case <-h.release:
		h.taken.Add(int64(len(batch)))
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *hung) Shutdown(context.Context) error { return nil }

// Nobody waits for a collector that takes no spans, and each span is counted as sent or as dropped. Cost: milliseconds.
func TestASlowCollectorDropsSpansWithACount(t *testing.T) {
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "20")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	h := &hung{release: make(chan struct{})}
	d := newDelivery(h, prometheus.NewRegistry(), func(text string) { t.Error(text) })
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(d))
	tracer := provider.Tracer("x")
	for range 1000 { // returns at once, or never
		_, span := tracer.Start(t.Context(), "one")
		span.End()
	}
	if got := testutil.ToFloat64(d.dropped); got != 980 {
		t.Errorf("%v spans were dropped, want 980", got)
	}
	close(h.release)
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if sent := testutil.ToFloat64(d.sent); sent != 20 || h.taken.Load() != 20 {
		t.Errorf("%v spans are counted as sent, %d were taken, want 20", sent, h.taken.Load())
	}
}

// Spans that still wait when Shutdown gives up are counted as dropped, once, also if the collector takes them later.
// Cost: milliseconds.
func TestSpansThatWaitAtTheEndAreDropped(t *testing.T) {
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5")
	h := &hung{release: make(chan struct{})}
	d := newDelivery(h, prometheus.NewRegistry(), func(text string) { t.Error(text) })
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(d))
	for range 20 {
		_, span := provider.Tracer("x").Start(t.Context(), "one")
		span.End()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := provider.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the end: %v", err)
	}
	close(h.release)
	for end := time.Now().Add(time.Minute); h.taken.Load() < 20 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if dropped, sent := testutil.ToFloat64(d.dropped), testutil.ToFloat64(d.sent); dropped != 20 || sent != 0 {
		t.Errorf("%v spans are counted as dropped and %v as sent, want 20 and 0", dropped, sent)
	}
}

// A collector that refuses spans is reported once, with the cause, and they are counted. Cost: 0.1 s.
func TestRefusedSpansAreCountedAndReportedOnce(t *testing.T) {
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", refusing.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	state, r := t.TempDir(), prometheus.NewRegistry()
	log := events.New(state, func(text string) { t.Error(text) }, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var reports []string
	ended := make(chan error, 1)
	go func() { ended <- Trace(ctx, state, "v1", r, func(text string) { reports = append(reports, text) }) }()
	for dropped := 0.0; dropped < 3; {
		log.Append(events.Event{Type: events.DriftFound, Subject: "x", SandboxID: "x"})
		time.Sleep(10 * time.Millisecond)
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "snapfs_spans_dropped_total" {
				dropped = f.GetMetric()[0].GetCounter().GetValue()
			}
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(reports) != 1 || !strings.Contains(reports[0], "404") {
		t.Errorf("reports: %q", reports)
	}
}

// A collector that takes another protocol gets no spans that it cannot read: the setting is an error. Cost: none.
func TestAnotherProtocolIsRefused(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	err := Trace(t.Context(), t.TempDir(), "v1", prometheus.NewRegistry(), nil)
	if !errors.Is(err, errs.ErrNotSupported) || !strings.Contains(err.Error(), "grpc") {
		t.Errorf("grpc: %v", err)
	}
}
