package telemetry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/errs"
)

// Wanted reports whether the environment names a collector for spans, by OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, and OTEL_SDK_DISABLED is not true
// (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/).
func Wanted() bool {
	named := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	return named && !strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true")
}

// flushing is how long [Trace] waits at its end until the collector, a monitoring program, has taken the last
// spans (timed operations). Then they are lost.
const flushing = 5 * time.Second

// Trace sends spans about the events of the state directory state to the collector that the environment
// names, as protobuf over HTTP, from now on until ctx ends. version is that of snapfs. A sandbox is one
// trace. Its span lasts from its creation to its removal and is sent then; the spans of its commands,
// promotions and other events are children of it. A span of a command has the name of the program and not its
// arguments, which may hold secrets. The identifiers are computed from those of the sandbox and the command,
// so a restart of the caller breaks no trace. Events of a time in which nobody calls Trace have no spans.
//
// While the collector is slow or away, spans are dropped: the counters that Trace registers with r tell how many,
// and Trace calls report with the cause when that begins.
//
// Errors: those of reading the stream and of the collector's settings; ErrNotSupported for another protocol. A
// collector that does not answer is no error. Cost: it reads the whole stored stream once, at most 32 MiB.
func Trace(ctx context.Context, state, version string, r prometheus.Registerer, report func(string)) error {
	if p := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL")); p != "" && p != "http/protobuf" {
		return errs.New("preparing to send spans", p, errs.ErrNotSupported, "snapfs sends spans as http/protobuf only",
			"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf")
	}
	exporter, err := otlptracehttp.New(context.WithoutCancel(ctx))
	if err != nil {
		return errs.With("preparing to send spans", "", err, "see OTEL_EXPORTER_OTLP_ENDPOINT")
	}
	about, err := resource.New(context.WithoutCancel(ctx), resource.WithHost(), resource.WithAttributes(
		attribute.String("service.name", "snapfs"), attribute.String("service.version", version)), resource.WithFromEnv())
	if err != nil {
		return errs.With("preparing to send spans", "", err, "see OTEL_RESOURCE_ATTRIBUTES")
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(newDelivery(exporter, r, report)), sdktrace.WithIDGenerator(givenIDs{}), sdktrace.WithResource(about))
	newest, err := events.Newest(state)
	if err == nil {
		s := &spans{
			tracer: provider.Tracer("github.com/snapfs/snapfs"), old: newest,
			sandboxes: map[string]*sandbox{},
		}
		err = events.Follow(ctx, state, 0, s.take)
		if err == nil {
			err = events.Read(state, s.last, s.take) // what came between its last look and the end
		}
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushing)
	defer cancel()
	_ = provider.Shutdown(end) // a collector that is away is no error
	return err
}

// A spans makes OpenTelemetry spans from the events of a state directory. [Trace] passes it each event.
type spans struct {
	tracer trace.Tracer
	// old is the number of the last event before the start: it and those before are remembered and not sent.
	old       uint64
	last      uint64              // the number of the last event that was taken
	sandboxes map[string]*sandbox // those that exist, by identifier
}

// A sandbox holds the earlier events of one sandbox, such as the starts of running commands, from which the
// spans (timed operations in OpenTelemetry) of later events are made.
type sandbox struct {
	made     events.Event
	commands map[string]events.Event // the starts of those that run, by Data.Run
}

// take handles the next event of the stream, and sends the OpenTelemetry span that it completes, if any. It
// always returns nil.
func (s *spans) take(e events.Event) error {
	s.last = max(s.last, e.Number(), e.Data.Last)
	switch e.Type {
	case events.SandboxCreated:
		s.sandboxes[e.SandboxID] = &sandbox{made: e, commands: map[string]events.Event{}}
	case events.SandboxRemoved:
		s.removed(e)
	case events.CommandStarted:
		if known := s.sandboxes[e.SandboxID]; known != nil {
			known.commands[e.Data.Run] = e
		}
	case events.CommandEnded:
		start := e
		start.Time = e.Time.Add(-time.Duration(e.Data.Seconds * float64(time.Second)))
		if known := s.sandboxes[e.SandboxID]; known != nil {
			if begun, ok := known.commands[e.Data.Run]; ok {
				start = begun
				delete(known.commands, e.Data.Run)
			}
		}
		s.command(start, e)
	case events.EventsLost: // nothing is known of them
	default:
		s.send(e, e.Type, id("event", e.Source, e.ID), e.Time, e.Time, "", attributesOf(e)...)
	}
	return nil
}

// removed sends the OpenTelemetry span of a sandbox that the event e has removed, and those of its commands
// that ended without an event, as after a kill.
func (s *spans) removed(e events.Event) {
	known := s.sandboxes[e.SandboxID]
	delete(s.sandboxes, e.SandboxID)
	if known == nil {
		return // its creation is no longer stored
	}
	for run, start := range known.commands {
		s.sendAt(e.Number(), start, "snapfs.command", commandID(start, run), start.Time, e.Time,
			"it ended unseen: it was killed, or its sandbox was removed", attributesOf(start)...)
	}
	s.sendAt(e.Number(), known.made, "snapfs.sandbox", sandboxID(e), known.made.Time, e.Time, "", attributesOf(known.made)...)
}

// command sends the OpenTelemetry span of a command of a sandbox that lasted from the event start to the
// event end.
func (s *spans) command(start, end events.Event) {
	why := ""
	list := attributesOf(start)
	if status := end.Data.Status; status != nil {
		list = append(list, attribute.Int("process.exit.code", *status))
		if *status != 0 {
			why = "it ended with a status other than 0"
		}
	}
	if end.Data.CPUSeconds > 0 {
		list = append(list, attribute.Float64("snapfs.cpu_seconds", end.Data.CPUSeconds))
	}
	if end.Data.MemoryBytes > 0 {
		list = append(list, attribute.Int64("snapfs.memory_bytes", end.Data.MemoryBytes))
	}
	if end.Data.Limit != "" {
		why = "it reached the limit " + end.Data.Limit
	}
	s.send(end, "snapfs.command", commandID(end, end.Data.Run), start.Time, end.Time, why, list...)
}

func (s *spans) send(e events.Event, name string, span trace.SpanID, begin, end time.Time, why string, list ...attribute.KeyValue) {
	s.sendAt(e.Number(), e, name, span, begin, end, why, list...)
}

// sendAt sends an OpenTelemetry span called name, from begin to end, in the trace of the event e, unless the
// event with this number came before [Trace] was called. why is the text of the failure; "" means success.
// list are the span's attributes.
func (s *spans) sendAt(number uint64, e events.Event, name string, span trace.SpanID, begin, end time.Time, why string, list ...attribute.KeyValue) {
	if number <= s.old {
		return
	}
	ctx, root := context.Background(), sandboxID(e)
	traceID := traceOf(e)
	if span != root {
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: traceID, SpanID: root, TraceFlags: trace.FlagsSampled, Remote: true,
		}))
	}
	ctx = context.WithValue(ctx, idsKey{}, ids{traceID, span})
	_, sent := s.tracer.Start(ctx, name, trace.WithTimestamp(begin), trace.WithAttributes(list...))
	if why != "" {
		sent.SetStatus(codes.Error, why)
	}
	sent.End(trace.WithTimestamp(end))
}

// attributesOf returns the attributes of the OpenTelemetry span of an event. Names of files and arguments of
// commands are not among them.
func attributesOf(e events.Event) (list []attribute.KeyValue) {
	text := func(name, value string) {
		if value != "" {
			list = append(list, attribute.String(name, value))
		}
	}
	d := e.Data
	text("snapfs.sandbox.name", e.Subject)
	text("snapfs.sandbox.id", e.SandboxID)
	text("snapfs.workspace", d.Workspace)
	text("snapfs.backends", strings.Join(d.Backends, ","))
	text("snapfs.origin", d.Origin)
	text("snapfs.name", d.Name)
	if len(d.Command) > 0 {
		text("process.executable.name", filepath.Base(d.Command[0]))
	}
	text("snapfs.limit", d.Limit)
	text("snapfs.reason", d.Reason)
	text("server.address", d.Host)
	if d.Port > 0 {
		list = append(list, attribute.Int("server.port", d.Port))
	}
	text("snapfs.promotion", d.Promotion)
	text("snapfs.plan", d.Plan)
	if d.Changes > 0 {
		list = append(list, attribute.Int("snapfs.changes", d.Changes))
	}
	return list
}

// id returns an identifier for an OpenTelemetry span: the first bytes of a hash of the words, so that the
// same words always give the same span.
func id(words ...string) (span trace.SpanID) {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	copy(span[:], sum[:])
	return span
}

// key returns the identifier of the subject of an event in the state directory: a sandbox, or the promotion
// of a sandbox that no longer exists.
func key(e events.Event) string {
	switch {
	case e.SandboxID != "":
		return e.SandboxID
	case e.Data.Promotion != "":
		return e.Data.Promotion
	}
	return e.ID
}

func traceOf(e events.Event) (t trace.TraceID) {
	sum := sha256.Sum256([]byte(strings.Join([]string{"trace", e.Source, key(e)}, "\x00")))
	copy(t[:], sum[:])
	return t
}

func sandboxID(e events.Event) trace.SpanID { return id("sandbox", e.Source, key(e)) }

func commandID(e events.Event, run string) trace.SpanID {
	return id("command", e.Source, e.SandboxID, run)
}

// An ids holds the identifiers of the trace and the span that the OpenTelemetry library must use next. It is
// passed in a context under idsKey.
type ids struct {
	trace trace.TraceID
	span  trace.SpanID
}

type idsKey struct{}

// A givenIDs makes the OpenTelemetry library use the identifiers of traces and spans that the context holds,
// instead of random ones. They are computed from snapfs's events, so that a span sent twice has the same
// identifier.
type givenIDs struct{}

func (givenIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	given := ctx.Value(idsKey{}).(ids) //nolint:errcheck,forcetypeassert // sendAt, the only caller of Start, sets it
	return given.trace, given.span
}

func (g givenIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, span := g.NewIDs(ctx)
	return span
}
