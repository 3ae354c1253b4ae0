package evidence

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
	"github.com/snapfs/snapfs/workflow/evidence/bundle"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
)

// greatLog writes a log of n records, with a start statement, to a new state directory.
func greatLog(t testing.TB, n int) *Store {
	t.Helper()
	cat, err := catalog.Open(treetest.Dir(t))
	if err != nil {
		t.Fatal(err)
	}
	s := Of(cat)
	key, err := s.Key()
	if err != nil {
		t.Fatal(err)
	}
	l := s.Log("s1")
	if err := l.Create(); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(events.SandboxCreated, map[string]any{"name": "fix", "policy": map[string]any{"network": "none"}}, false); err != nil {
		t.Fatal(err)
	}
	if err := s.sign(l, key, "start", startName, audit.Began, func([]audit.Record) (map[string]any, error) { return map[string]any{}, nil }); err != nil {
		t.Fatal(err)
	}
	lines, _, err := l.Lines()
	if err != nil {
		t.Fatal(err)
	}
	last, err := audit.Parse(lines[1])
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.NewBuffer(append(bytes.Join(lines, []byte("\n")), '\n'))
	line := lines[1]
	for i := 2; i < n; i++ {
		r := last
		r.Seq, r.Prev, r.Up, r.Type = int64(i), audit.Digest(line), last.Up+int64(i), events.NetworkRefused
		r.Time = time.Unix(1700000000, 0).UTC().Add(time.Duration(i) * time.Millisecond).Format(time.RFC3339Nano)
		r.Data = map[string]any{"host": fmt.Sprintf("h%d.example.org", i%50), "port": 443}
		if line, err = audit.Canonical(r); err != nil {
			t.Fatal(err)
		}
		text.Write(line)
		text.WriteByte('\n')
	}
	if err := os.WriteFile(filepath.Join(l.Dir(), audit.LogName), text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// BenchmarkExport measures the end, the export and the verification of 100,000 records, in time on processors.
func BenchmarkExport(b *testing.B) {
	s := greatLog(b, 100_000)
	log := filepath.Join(s.Log("s1").Dir(), audit.LogName)
	before, err := os.ReadFile(log)
	if err != nil {
		b.Fatal(err)
	}
	var ended, exported, verified time.Duration
	n := 0
	for b.Loop() {
		n++
		from := treetest.ProcessorTime(b)
		if err := s.end(s.Log("s1")); err != nil {
			b.Fatal(err)
		}
		ended += treetest.ProcessorTime(b) - from
		from = treetest.ProcessorTime(b)
		r, err := s.Export("s1")
		if err != nil {
			b.Fatal(err)
		}
		exported += treetest.ProcessorTime(b) - from
		from = treetest.ProcessorTime(b)
		bundle.Verify(r.Text, bundle.Options{})
		verified += treetest.ProcessorTime(b) - from
		// The next round has a log without an end, of which no position is stored.
		if err := errors.Join(os.WriteFile(log, before, 0o600), os.Remove(filepath.Join(filepath.Dir(log), "verified"))); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(ended.Seconds()/float64(n), "end-cpu-s")
	b.ReportMetric(exported.Seconds()/float64(n), "export-cpu-s")
	b.ReportMetric(verified.Seconds()/float64(n), "verify-cpu-s")
}

// TestTheExportOfAGreatLogHasItsRoot compares what Export returns with what Verify computes.
func TestTheExportOfAGreatLogHasItsRoot(t *testing.T) {
	s := greatLog(t, 3000)
	if err := s.end(s.Log("s1")); err != nil {
		t.Fatal(err)
	}
	r, err := s.Export("s1")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := bundle.Decode(r.Text); err != nil || len(b.Records) != r.Records || r.Records != 3001 {
		t.Errorf("%d records, %v", r.Records, err)
	}
}

// TestAHostsKeyMakesThePositionOfALog changes a record before the stored position. A host with another key
// does not believe the position, reads the whole log and finds that.
func TestAHostsKeyMakesThePositionOfALog(t *testing.T) {
	s := greatLog(t, 300)
	started := events.Event{Type: events.CommandStarted, SandboxID: "s1", Data: events.Data{Command: []string{"true"}}}
	if err := s.Before(started); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(s.Log("s1").Dir(), audit.LogName)
	text, err := os.ReadFile(log)
	if err == nil {
		err = os.WriteFile(log, bytes.Replace(text, []byte(`"host":"h2.`), []byte(`"host":"h3.`), 1), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := Of(s.cat).Before(started); err != nil {
		t.Errorf("the position was not believed: %v", err)
	}
	if err := os.Remove(filepath.Join(s.dir, statement.KeyName)); err != nil {
		t.Fatal(err)
	}
	if err := Of(s.cat).Before(started); !errors.Is(err, errs.ErrCorrupt) {
		t.Errorf("without the key: %v", err)
	}
	if _, err := s.Key(); err != nil { // makes another one
		t.Fatal(err)
	}
	if err := Of(s.cat).Before(started); !errors.Is(err, errs.ErrCorrupt) {
		t.Errorf("with another key: %v", err)
	}
	if err := s.Before(started); err != nil {
		t.Errorf("the process that has verified the log reads it again: %v", err)
	}
}

// TestRefusalsDoNotFillALog has a log, of which only the part is left that is reserved for operations: a closed
// segment, sparse, has all but a MiB of its bound.
func TestRefusalsDoNotFillALog(t *testing.T) {
	s := greatLog(t, 3)
	older := filepath.Join(s.Log("s1").Dir(), "log-000000000000.jsonl")
	if err := errors.Join(os.WriteFile(older, nil, 0o600), os.Truncate(older, 1<<30-1<<20)); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{events.AccessRefused, events.NetworkRefused} {
		if err := s.After(events.Event{Type: kind, SandboxID: "s1"}); !errors.Is(err, errs.ErrNoSpace) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if err := s.Log("s1").Room(); err != nil {
		t.Errorf("an act has no room: %v", err)
	}
}

// TestARemovedSandboxIsFoundByItsLastName renames a sandbox with a great log, whose catalogue entry is gone.
func TestARemovedSandboxIsFoundByItsLastName(t *testing.T) {
	s := greatLog(t, treetest.Budget(t, 3000, 100_000))
	l := s.Log("s1")
	if err := l.Append(events.SandboxRenamed, map[string]any{"name": "mended"}, false); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(events.NetworkRefused, map[string]any{"name": "other"}, false); err != nil {
		t.Fatal(err)
	}
	from := treetest.ProcessorTime(t)
	id, err := s.Find("mended")
	t.Logf("found in %v of processor time", treetest.ProcessorTime(t)-from)
	if err != nil || id != "s1" {
		t.Errorf("it is %q, %v", id, err)
	}
	for _, name := range []string{"fix", "other"} {
		if _, err := s.Find(name); !errors.Is(err, errs.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestABrokenChainIsNotSigned changes a record before the stored position, and adds one at the end that does not
// follow: the export is refused with the number of the record.
func TestABrokenChainIsNotSigned(t *testing.T) {
	for name, c := range map[string]struct{ old, changed, want string }{
		"before the position": {`"host":"h2.`, `"host":"h3.`, "record 3,"},
		"of another sandbox":  {`"sandbox":"s1"`, `"sandbox":"s2"`, "record 0,"},
		"of another number":   {`"seq":7`, `"seq":8`, "record 7,"},
	} {
		t.Run(name, func(t *testing.T) {
			s := greatLog(t, 300)
			if err := s.Before(events.Event{Type: events.CommandStarted, SandboxID: "s1", Data: events.Data{Command: []string{"true"}}}); err != nil {
				t.Fatal(err)
			}
			if _, err := Of(s.cat).Export("s1"); err != nil {
				t.Fatal(err)
			}
			log := filepath.Join(s.Log("s1").Dir(), audit.LogName)
			text, err := os.ReadFile(log)
			if err == nil {
				err = os.WriteFile(log, bytes.Replace(text, []byte(c.old), []byte(c.changed), 1), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			if r, err := Of(s.cat).Export("s1"); !errors.Is(err, errs.ErrCorrupt) || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("it was exported: %v, %v; want an error with %q", r != nil, err, c.want)
			}
		})
	}
}
