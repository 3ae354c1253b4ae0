//go:build linux

package agents

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

// A collector is the OpenTelemetry Collector as a process, with its receiver of OTLP and its exporter to a file.
type collector struct {
	t                      *testing.T
	cmd                    *exec.Cmd
	address, metrics, file string
}

// A receivedSpan is a span as the collector has written it. Attributes has those of the span and of its resource.
type receivedSpan struct {
	TraceID, SpanID, ParentSpanID, Name string
	Start, End                          int64
	Failed                              bool
	Why                                 string
	Attributes                          map[string]string
}

// collectorProgram builds the collector, once, from its own modules: testdata/otelcol names their versions.
// Only make test-long does it: with no cache of compiled packages it takes 67 s of processor time.
func collectorProgram(t *testing.T) string {
	t.Helper()
	treetest.OncePerRun(t)
	dir := once(t, "otelcol", func(dir string) {
		source, err := filepath.Abs("testdata/otelcol")
		if err != nil {
			t.Fatal(err)
		}
		installed(t, "go.opentelemetry.io/collector", "go", "build", "-C", source, "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "otelcol"), ".")
	})
	return filepath.Join(dir, "otelcol")
}

// freePort returns an address of loopback at which nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// newCollector starts a collector, and returns once it takes spans.
func newCollector(t *testing.T) *collector {
	t.Helper()
	program, dir := collectorProgram(t), treetest.Dir(t)
	c := &collector{t: t, address: freePort(t), metrics: freePort(t), file: filepath.Join(dir, "spans.json")}
	_, port, _ := net.SplitHostPort(c.metrics)
	settings := fmt.Sprintf(`receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {file: {path: %q, flush_interval: 20ms}}
service:
  pipelines: {traces: {receivers: [otlp], exporters: [file]}}
  telemetry:
    metrics: {level: detailed, readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: %s}}}}]}
`, c.address, c.file, port)
	if err := os.WriteFile(filepath.Join(dir, "settings.yaml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	c.cmd = exec.Command(program, "--config", "file:"+filepath.Join(dir, "settings.yaml"))
	said, err := c.cmd.StderrPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.end)
	lines, log := bufio.NewScanner(said), &bytes.Buffer{}
	for lines.Scan() {
		fmt.Fprintln(log, lines.Text())
		if strings.Contains(lines.Text(), "Everything is ready") {
			go io.Copy(io.Discard, said) //nolint:errcheck // it ends with the collector
			return c
		}
	}
	t.Fatalf("the collector does not start: %s", log)
	return nil
}

func (c *collector) end() {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Signal(syscall.SIGCONT) // it may stand still
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
		_ = c.cmd.Wait() // says that it was killed
	}
}

// received returns the spans that the collector has written, by their identifier. One may have come twice, where the
// collector had taken it too late.
func (c *collector) received() map[string]receivedSpan {
	c.t.Helper()
	text, err := os.ReadFile(c.file)
	if err != nil {
		c.t.Fatal(err)
	}
	type attribute struct {
		Key   string
		Value map[string]any
	}
	type attributes []attribute
	spans := map[string]receivedSpan{}
	text = text[:bytes.LastIndexByte(text, '\n')+1] // the last one may not be complete
	for line := range bytes.Lines(text) {
		var document struct {
			ResourceSpans []struct {
				Resource   struct{ Attributes attributes }
				ScopeSpans []struct {
					Spans []struct {
						TraceID, SpanID, ParentSpanID, Name string
						StartTimeUnixNano, EndTimeUnixNano  int64 `json:",string"`
						Attributes                          attributes
						Status                              struct {
							Code    int
							Message string
						}
					}
				}
			}
		}
		if err := json.Unmarshal(line, &document); err != nil {
			c.t.Fatalf("%v: %s", err, line)
		}
		for _, r := range document.ResourceSpans {
			for _, scope := range r.ScopeSpans {
				for _, s := range scope.Spans {
					one := receivedSpan{
						TraceID: s.TraceID, SpanID: s.SpanID, ParentSpanID: s.ParentSpanID, Name: s.Name, Start: s.StartTimeUnixNano, End: s.EndTimeUnixNano,
						Failed: s.Status.Code == 2, Why: s.Status.Message, Attributes: map[string]string{},
					}
					for _, a := range append(s.Attributes, r.Resource.Attributes...) {
						for _, v := range a.Value {
							one.Attributes[a.Key] = fmt.Sprint(v)
						}
					}
					spans[s.SpanID] = one
				}
			}
		}
	}
	return spans
}

// await returns the spans once found returns true for them. what names them for the error.
func (c *collector) await(what string, found func(map[string]receivedSpan) bool) map[string]receivedSpan {
	c.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		spans := c.received()
		switch {
		case found(spans):
			return spans
		case time.Now().After(deadline):
			c.t.Fatalf("the collector has no %s: %v", what, spans)
		}
	}
}

// spansNamed returns the spans called name of the sandbox called sandbox.
func spansNamed(spans map[string]receivedSpan, name, sandbox string) (list []receivedSpan) {
	for _, s := range spans {
		if s.Name == name && s.Attributes["snapfs.sandbox.name"] == sandbox {
			list = append(list, s)
		}
	}
	return list
}

// numberOf returns the sum of the metrics called name at url, which are in the text format of Prometheus; 0 if there is
// none.
func numberOf(t *testing.T, url, token, name string) (sum float64) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", url, response.Status)
	}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), " ")
		if at := strings.LastIndexByte(lines.Text(), ' '); strings.Contains(key, "{") && at > 0 {
			value = lines.Text()[at+1:]
		}
		if key, _, _ = strings.Cut(key, "{"); key == name {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatalf("%s: %v", lines.Text(), err)
			}
			sum += n
		}
	}
	return sum
}

// tracing starts a server that sends its spans to c, and returns its address and a token once spans arrive.
func (d *desk) tracing(c *collector, env ...string) (address, token string) {
	d.t.Helper()
	out, err := d.snapfs("token", "new", "--scope", "read", "watch")
	if err != nil {
		d.t.Fatal(err)
	}
	server := d.command("serve", "--listen", "127.0.0.1:0", "-C", d.work)
	server.Env = append(append(server.Env, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+c.address, "OTEL_BSP_SCHEDULE_DELAY=20",
		"OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test"), env...)
	address = d.serving(server)
	for deadline := time.Now().Add(30 * time.Second); len(c.received()) == 0; { // earlier events have no spans
		if time.Now().After(deadline) {
			d.t.Fatal("no span came")
		}
		d.do("new", "first")
		d.do("rm", "first")
	}
	return address, strings.TrimSpace(out)
}

// do runs a command that must succeed, within a minute.
func (d *desk) do(args ...string) {
	d.t.Helper()
	cmd := d.command(args...)
	timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if out, err := cmd.CombinedOutput(); err != nil {
		d.t.Fatalf("%v: %v: %s", args, err, out)
	}
}

// The OpenTelemetry Collector itself reads the spans of a sandbox: one trace with the names, attributes, parents and
// states that docs/serve.md describes, and it refuses none.
func TestARealCollectorReadsTheSpans(t *testing.T) {
	if treetest.Budget(t, 0, 1) == 0 {
		return
	}
	d, c := newDesk(t), newCollector(t)
	address, token := d.tracing(c)
	d.do("new", "one")
	d.do("exec", "one", "--", "sh", "-c", "echo hunter2 > made")
	if _, err := d.snapfs("exec", "one", "--", "sh", "-c", "exit 3"); err == nil {
		t.Error("a status was lost")
	}
	d.do("snapshot", "one", "point")
	d.do("promote", "one")
	d.do("rm", "one")
	spans := c.await("sandbox one", func(all map[string]receivedSpan) bool { return len(spansNamed(all, "snapfs.sandbox", "one")) == 1 })

	root := spansNamed(spans, "snapfs.sandbox", "one")[0]
	if root.ParentSpanID != "" || root.Failed || root.End <= root.Start {
		t.Errorf("the sandbox's span: %+v", root)
	}
	for key, want := range map[string]string{
		"snapfs.workspace": d.work, "service.name": "snapfs", "deployment.environment.name": "test", "snapfs.sandbox.name": "one",
	} {
		if root.Attributes[key] != want {
			t.Errorf("%s is %q, want %q", key, root.Attributes[key], want)
		}
	}
	states := map[string]string{}
	for _, s := range spansNamed(spans, "snapfs.command", "one") {
		states[s.Attributes["process.exit.code"]] = s.Why
		if s.Attributes["process.executable.name"] != "sh" || s.Failed != (s.Why != "") || s.End < s.Start {
			t.Errorf("a command's span: %+v", s)
		}
	}
	if why, ok := states["0"]; !ok || why != "" || states["3"] == "" || len(states) != 2 {
		t.Errorf("the commands' states: %q", states)
	}
	for _, name := range []string{"snapfs.command", "snapfs.snapshot.created", "snapfs.changes.promoted"} {
		if len(spansNamed(spans, name, "one")) == 0 {
			t.Errorf("no span %s in %v", name, spans)
		}
		for _, s := range spansNamed(spans, name, "one") {
			if s.TraceID != root.TraceID || s.ParentSpanID != root.SpanID || s.Start < root.Start || s.End > root.End {
				t.Errorf("%s is not below its sandbox: %+v, %+v", name, s, root)
			}
		}
	}
	if text, err := os.ReadFile(c.file); err != nil || bytes.Contains(text, []byte("hunter2")) {
		t.Errorf("an argument of a command was sent, or %v", err)
	}

	accepted := numberOf(t, "http://"+c.metrics+"/metrics", "", "otelcol_receiver_accepted_spans")
	sent := numberOf(t, "http://"+address+"/metrics", token, "snapfs_spans_sent_total")
	if n := float64(len(spans)); accepted != n || sent != n {
		t.Errorf("%v spans are sent, %v accepted, %v written", sent, accepted, n)
	}
	for _, name := range []string{"otelcol_receiver_refused_spans", "otelcol_receiver_failed_spans", "otelcol_exporter_send_failed_spans"} {
		if n := numberOf(t, "http://"+c.metrics+"/metrics", "", name); n != 0 {
			t.Errorf("%s is %v", name, n)
		}
	}
	if n := numberOf(t, "http://"+address+"/metrics", token, "snapfs_spans_dropped_total"); n != 0 {
		t.Errorf("%v spans were dropped", n)
	}
}

// A collector that stands still, and then one that is away, holds up no command; its spans are dropped and counted.
// A collector that goes on gets spans again.
func TestASlowCollectorHoldsUpNobody(t *testing.T) {
	if treetest.Budget(t, 0, 1) == 0 {
		return
	}
	d, c := newDesk(t), newCollector(t)
	address, token := d.tracing(c, "OTEL_BSP_MAX_QUEUE_SIZE=4", "OTEL_EXPORTER_OTLP_TIMEOUT=200")
	dropped := func() float64 {
		return numberOf(t, "http://"+address+"/metrics", token, "snapfs_spans_dropped_total")
	}
	more := func(than float64) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); dropped() <= than; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%v spans are counted as dropped, want more than %v", dropped(), than)
			}
		}
	}
	work := func(name string) {
		t.Helper()
		d.do("new", name)
		for range 8 {
			d.do("exec", name, "--", "true")
		}
		d.do("rm", name)
	}
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	work("still")
	more(0)
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); len(spansNamed(c.received(), "snapfs.sandbox", "again")) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("no spans come any more")
		}
		d.do("new", "again")
		d.do("rm", "again")
	}
	before := dropped()
	c.end()
	work("away")
	more(before)
}
