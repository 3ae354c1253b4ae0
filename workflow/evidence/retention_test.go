package evidence

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
	"github.com/snapfs/snapfs/workflow/evidence/bundle"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
)

// trueLog writes a log of n records with their true times, with a start statement, to a new state directory.
func trueLog(t testing.TB, n int) *Store {
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
	err = l.Create()
	if err == nil {
		err = l.Append(events.SandboxCreated, map[string]any{"name": "fix", "policy": map[string]any{"network": "none"}}, false)
	}
	if err == nil {
		err = s.sign(l, key, statement.StartType, startName, audit.Began, func([]audit.Record) (map[string]any, error) { return map[string]any{}, nil })
	}
	for i := 2; i < n && err == nil; i++ {
		err = l.Append(events.NetworkRefused, map[string]any{"host": fmt.Sprintf("h%d.example.org", i)}, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// inFiles splits the log into closed files of 100 records.
func inFiles(t testing.TB, l *audit.Log) {
	t.Helper()
	lines, _, err := l.Lines()
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(lines); at += 100 {
		name := fmt.Sprintf("log-%012d.jsonl", at)
		if at+100 >= len(lines) {
			name = audit.LogName
		}
		text := append(bytes.Join(lines[at:min(at+100, len(lines))], []byte("\n")), '\n')
		if err := os.WriteFile(filepath.Join(l.Dir(), name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_ = os.Remove(filepath.Join(l.Dir(), "verified")) // it is of the log as one file
}

// verdictOf returns the verdict on the completeness of the sandbox's exported evidence, and whether the others hold.
func verdictOf(t testing.TB, s *Store, earlier []byte) (bundle.Verdict, []byte) {
	t.Helper()
	key, err := s.Key()
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Export("s1")
	if err != nil {
		t.Fatal(err)
	}
	report := bundle.Verify(r.Text, bundle.Options{Key: key.Public(), Earlier: earlier})
	for _, v := range report.Verdicts[:2] {
		if v.Result != "yes" {
			t.Fatalf("%s: %s %s", v.Name, v.Fault, v.Why)
		}
	}
	return report.Verdicts[2], r.Text
}

// TestOldRecordsGoUnderASignedRule removes records by their number: only with remove, only whole files, and the
// exported evidence names them. An export of before can still be compared.
func TestOldRecordsGoUnderASignedRule(t *testing.T) {
	s := trueLog(t, 450)
	l := s.Log("s1")
	inFiles(t, l)
	if err := l.Compress(); err != nil {
		t.Fatal(err)
	}
	_, before := verdictOf(t, s, nil)
	rule := catalog.KeepEvidence{Records: 120}
	p, err := s.Prune("s1", rule, false)
	if err != nil || p.First != 2 || p.Last != 299 || p.Records != 298 || p.Removed {
		t.Fatalf("a dry run: %+v, %v", p, err)
	}
	if lines, _, err := l.Lines(); err != nil || len(lines) != 450 {
		t.Fatalf("after a dry run: %d records, %v", len(lines), err)
	}
	if p, err = s.Prune("s1", rule, true); err != nil || p.Last != 299 || !p.Removed {
		t.Fatalf("the removal: %+v, %v", p, err)
	}
	if p, err := s.Prune("s1", rule, true); err != nil || p.Records != 0 {
		t.Errorf("again: %+v, %v", p, err)
	}
	if v, _ := verdictOf(t, s, before); v.Fault != "no-end" {
		t.Errorf("before the end: %+v", v)
	}
	if err := s.After(events.Event{Type: events.NetworkRefused, SandboxID: "s1"}); err != nil {
		t.Fatal(err)
	}
	if err := s.end(s.Log("s1")); err != nil {
		t.Fatal(err)
	}
	if v, _ := verdictOf(t, s, before); v.Result != "yes" || v.Fault != bundle.Removed {
		t.Errorf("after the end: %+v", v)
	}
	removalFits(t, l)
	if id, err := s.Find("fix"); err != nil || id != "s1" {
		t.Errorf("found by its name: %q, %v", id, err)
	}
	if err := os.Remove(filepath.Join(l.Dir(), "log-000000000300.jsonl.gz")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Export("s1"); err == nil {
		t.Error("a file was removed without a statement, and the record is exported")
	}
}

// removalFits checks the predicate of the last statement of a removal against its schema.
func removalFits(t *testing.T, l *audit.Log) {
	t.Helper()
	_, records, err := l.Verified()
	if err != nil {
		t.Fatal(err)
	}
	_, at, err := audit.RemovedIn(records)
	if err != nil {
		t.Fatal(err)
	}
	var e statement.Envelope
	var st statement.Statement
	var schema jsonschema.Schema
	written, err := os.ReadFile("../../docs/evidence/removal.json")
	if err == nil {
		err = errors.Join(json.Unmarshal(written, &schema), json.Unmarshal(records[at].Statement(), &e))
	}
	if err != nil {
		t.Fatal(err)
	}
	body, err := base64.StdEncoding.DecodeString(e.Payload)
	if err == nil {
		err = json.Unmarshal(body, &st)
	}
	if err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err == nil {
		err = resolved.Validate(st.Predicate)
	}
	if err != nil {
		t.Errorf("the predicate of a removal: %v", err)
	}
}

// TestARuleRemovesByNumberAgeAndSize lists for rules and the administrator's minimum the first record that stays of a
// log with four files of 100 records and of 1000 bytes, the first three of which are three, two and one days old.
func TestARuleRemovesByNumberAgeAndSize(t *testing.T) {
	now := time.Now()
	day := 24 * time.Hour
	var segments []audit.Segment
	for i := range int64(4) {
		segments = append(segments, audit.Segment{First: 100 * i, Records: 100, Size: 1000, Last: now.Add(time.Duration(i-3) * day)})
	}
	after := append([]audit.Segment{{First: 0, Records: audit.Opening, Size: 100, Last: now.Add(-3 * day)}}, segments[2:]...)
	none := catalog.KeepEvidence{}
	for _, c := range []struct {
		segments    []audit.Segment
		rule, floor catalog.KeepEvidence
		end, want   int64
	}{
		{segments, none, none, 0, 0},
		{segments, catalog.KeepEvidence{Records: 401}, none, 0, 0},
		{segments, catalog.KeepEvidence{Records: 300}, none, 0, 100},
		{segments, catalog.KeepEvidence{Records: 1}, none, 0, 300},
		{segments, catalog.KeepEvidence{For: 36 * time.Hour}, none, 0, 200},
		{segments, catalog.KeepEvidence{Size: 1500}, none, 0, 200},
		{segments, catalog.KeepEvidence{Size: 1500, For: time.Hour}, none, 0, 300},
		{segments, catalog.KeepEvidence{All: true, For: time.Hour}, none, 0, 0},
		{segments, catalog.KeepEvidence{Records: 1}, catalog.KeepEvidence{For: 36 * time.Hour}, 0, 200},
		{segments, catalog.KeepEvidence{Records: 1}, catalog.KeepEvidence{Records: 250}, 0, 100},
		{segments, catalog.KeepEvidence{Records: 1}, catalog.KeepEvidence{Size: 4000}, 0, 0},
		{segments, catalog.KeepEvidence{Records: 1}, none, 250, 200},
		{after, catalog.KeepEvidence{Records: 1}, none, 0, 300},
		{after, catalog.KeepEvidence{Records: 101}, none, 0, 0},
	} {
		var records []audit.Record
		if c.end > 0 {
			records = []audit.Record{{Seq: c.end, Type: audit.Ended}}
		}
		if got := oldest(c.segments, records, c.rule, c.floor, now); got != c.want {
			t.Errorf("the rule %q with the minimum %q and the end %d: %d; want %d", c.rule, c.floor, c.end, got, c.want)
		}
	}
}

// TestTheSiteKeepsRecords has a site's policy with a minimum, and one that forbids each removal.
func TestTheSiteKeepsRecords(t *testing.T) {
	treetest.NeedRoot(t) // a site's policy is root's
	s := trueLog(t, 450)
	inFiles(t, s.Log("s1"))
	was := policy.SiteDir
	t.Cleanup(func() { policy.SiteDir = was })
	policy.SiteDir = treetest.Dir(t)
	site := func(rule string) {
		t.Helper()
		path := filepath.Join(policy.SiteDir, "policy.toml")
		err := os.WriteFile(path, []byte("[sandbox]\nkeep-evidence = \""+rule+"\"\n"), 0o644)
		if err = errors.Join(err, os.Chmod(policy.SiteDir, 0o755), os.Chmod(path, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	rule := catalog.KeepEvidence{Records: 1}
	site("all")
	if p, err := s.Prune("s1", rule, true); !errors.Is(err, errs.ErrDenied) {
		t.Errorf("a site that keeps all: %+v, %v", p, err)
	}
	site("records=250")
	if p, err := s.Prune("s1", rule, true); err != nil || p.Last != 199 || !p.Removed {
		t.Errorf("a site that keeps 250 records: %+v, %v", p, err)
	}
}
