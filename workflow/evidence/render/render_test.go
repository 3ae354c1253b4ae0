package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
	"github.com/snapfs/snapfs/workflow/evidence/bundle"
	"golang.org/x/net/html"
)

// hostile is a text that would leave its place in a page.
const hostile = `<script>alert(1)</script>"'><img src=x onerror=alert(2)>&` + "\x1b[2J\u202e"

// sample is a record of each kind of act, with a hostile text wherever one can come from a sandbox.
func sample() *Record {
	r := &Record{
		Bundle: &bundle.Bundle{Sandbox: "s1", Manifests: [][][]byte{{[]byte(`{"change":"added","path":"/w/<b>x</b>","size":3}`)}}},
		Report: bundle.Report{Root: "00", Key: "11", Verdicts: []bundle.Verdict{
			{Name: "integrity", Result: "yes", Why: "good"}, {Name: "policy", Result: "no", Fault: "network", Why: hostile},
		}},
	}
	add := func(kind string, data map[string]any) {
		r.Records = append(r.Records, audit.Record{Seq: int64(len(r.Records)), Time: "2026-01-02T03:04:05.5Z", Sandbox: "s1", Type: kind, Data: data})
	}
	add(events.SandboxCreated, map[string]any{
		"name": hostile, "workspace": hostile, "by": map[string]any{"user": "ada", "uid": 1000.0, "sudo_uid": 7.0},
		"policy": map[string]any{"network": "none", "limits": map[string]any{"memory": "1G"}},
	})
	add(events.CommandStarted, map[string]any{"run": "r1", "program": hostile, "arguments": []any{"sha256:00"}})
	add(events.CommandEnded, map[string]any{"run": "r1", "status": 3.0, "milliseconds": 1500.0})
	add(events.CommandStarted, map[string]any{"run": "r2", "program": "nc", "arguments": []any{}})
	add(events.CommandRefused, map[string]any{"run": "r2", "reason": hostile})
	add(events.NetworkRefused, map[string]any{"host": hostile, "port": 443.0, "reason": "no rule"})
	add(events.LimitReached, map[string]any{"limit": "memory", "value": "1G"})
	add(events.CheckEnded, map[string]any{"name": "dev", "reason": "before", "check": []any{"sh", "-c", hostile}, "status": 0.0})
	add(events.ApprovalAsked, map[string]any{"target": "/w", "reason": "needs approval", "paths": []any{hostile}})
	add(events.ChangesPromoting, map[string]any{"promotion": "p1", "by": map[string]any{"user": "grace", "uid": 0.0}})
	add(events.ChangesPromoted, map[string]any{"promotion": "p1", "target": "/w", "changes": 2.0})
	return r
}

// TestThePageIsInert parses the page: it has only the elements that Page writes, no attribute that acts, and says what
// was done.
func TestThePageIsInert(t *testing.T) {
	page := Page(sample())
	allowed := " html head meta title style body h1 h2 p table tr th td footer "
	z := html.NewTokenizer(bytes.NewReader(page))
	var shown strings.Builder
	policy := ""
	for {
		kind := z.Next()
		if kind == html.ErrorToken {
			if !errors.Is(z.Err(), io.EOF) {
				t.Fatal(z.Err())
			}
			break
		}
		token := z.Token()
		switch kind {
		case html.StartTagToken, html.SelfClosingTagToken:
			if !strings.Contains(allowed, " "+token.Data+" ") {
				t.Errorf("the page has an element %s", token.Data)
			}
			for _, a := range token.Attr {
				if strings.HasPrefix(a.Key, "on") || a.Key == "src" || a.Key == "href" || a.Key == "style" {
					t.Errorf("the page has an attribute %s", a.Key)
				}
				if a.Key == "content" && policy == "" && strings.Contains(a.Val, "default-src") {
					policy = a.Val
				}
			}
		case html.TextToken:
			shown.WriteString(token.Data + "\n")
		}
	}
	if !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") || strings.Contains(policy, "unsafe") {
		t.Errorf("the page has the policy %q", policy)
	}
	for _, want := range []string{"ada (sudo by user 7)", "status 3", "1.5s", "refused", "port 443", "grace", "/w/<b>x</b>", "the limit memory 1G", "sh -c <script>"} {
		if !strings.Contains(shown.String(), want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	if bytes.ContainsAny(page, "\x1b\u202e") || bytes.Contains(page, []byte("sha256:00")) {
		t.Error("the page has a control character, or a digest of an argument")
	}
}

// TestEachFormatIsWhatItSays checks the fields that each format requires.
func TestEachFormatIsWhatItSays(t *testing.T) {
	r := sample()
	for format, check := range map[string]func(line map[string]any) error{
		CloudEvents: func(line map[string]any) error {
			for _, field := range []string{"specversion", "id", "source", "type", "time", "data"} {
				if line[field] == nil {
					return fmt.Errorf("no %s", field)
				}
			}
			return nil
		},
		OCSF: checkOCSF,
		OTLP: func(line map[string]any) error { return checkOTLP(line, len(r.Records)) },
	} {
		var out bytes.Buffer
		if err := Lines(&out, r, format); err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range strings.Lines(out.String()) {
			var event map[string]any
			if err := json.Unmarshal([]byte(line), &event); err != nil {
				t.Fatal(err)
			}
			if err := check(event); err != nil {
				t.Errorf("%s, line %d: %v: %s", format, n, err, line)
			}
			n++
		}
		if want := len(r.Records); n != want && format != OTLP {
			t.Errorf("%s: %d lines, want %d", format, n, want)
		}
	}
	if Lines(io.Discard, r, "xml") == nil {
		t.Error("an unknown format is accepted")
	}
}

// checkOTLP checks that a request has n records, the first with the right time.
func checkOTLP(line map[string]any, n int) error {
	var request struct {
		ResourceLogs []struct {
			ScopeLogs []struct {
				LogRecords []struct{ TimeUnixNano string }
			}
		}
	}
	again, err := json.Marshal(line)
	if err == nil {
		err = json.Unmarshal(again, &request)
	}
	if err != nil {
		return err
	}
	if logs := request.ResourceLogs[0].ScopeLogs[0].LogRecords; len(logs) != n || logs[0].TimeUnixNano != "1767323045500000000" {
		return fmt.Errorf("%d records: %v", len(logs), logs)
	}
	return nil
}

// checkOCSF checks what OCSF requires of every event, and of the three classes.
func checkOCSF(e map[string]any) error {
	class, _ := e["class_uid"].(float64)
	activity, _ := e["activity_id"].(float64)
	if e["type_uid"] != class*100+activity || e["category_uid"] != float64(int(class)/1000) {
		return fmt.Errorf("type %v, category %v", e["type_uid"], e["category_uid"])
	}
	required := map[float64][]string{classProcess: {"actor", "device", "process"}, classNetwork: {"dst_endpoint"}, classAPI: {"actor", "api", "src_endpoint"}}[class]
	if required == nil {
		return fmt.Errorf("class %v", class)
	}
	for _, field := range append(required, "time", "severity_id", "metadata") {
		if e[field] == nil {
			return fmt.Errorf("no %s", field)
		}
	}
	if activity == activityOther && e["activity_name"] == nil {
		return fmt.Errorf("no activity_name")
	}
	return nil
}
