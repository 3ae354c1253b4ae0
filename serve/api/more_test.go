//go:build linux

package api

import (
	"context"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/serve/token"
)

// TestLimitsAreShownAndSet costs some 0.3 s.
func TestLimitsAreShownAndSet(t *testing.T) {
	d := newDesk(t)
	const limits = "/v1/sandboxes/t1/limits"
	d.want(201, nil, "POST", "/v1/sandboxes", map[string]any{"name": "t1", "limits": map[string]string{"memory": "1G"}})
	var l Limits
	d.want(200, &l, "GET", limits, nil)
	if l.Limits["memory"] != "1G" || l.Usage != nil {
		t.Errorf("%+v", l)
	}
	d.want(201, nil, "POST", "/v1/sandboxes/t1/commands", map[string]any{"command": "exec sleep 600"})
	d.want(200, &l, "PATCH", limits, map[string]any{"limits": map[string]string{"memory": "2G", "pids": "100"}})
	if l.Limits["memory"] != "2G" || l.Limits["pids"] != "100" || l.Usage == nil {
		t.Errorf("%+v", l)
	}
	l = Limits{}
	d.want(200, &l, "PATCH", limits, map[string]any{"limits": map[string]string{"pids": "none"}})
	if l.Limits["memory"] != "2G" || l.Limits["pids"] != "" {
		t.Errorf("%+v", l)
	}
	d.want(400, nil, "PATCH", limits, map[string]any{"limits": map[string]string{"memory": "3G", "nothing": "1"}})
	d.want(400, nil, "PATCH", limits, map[string]any{"limits": map[string]string{"memory": "much"}})
	d.want(422, nil, "PATCH", limits, map[string]any{"limits": map[string]string{}})
	d.want(404, nil, "PATCH", "/v1/sandboxes/none/limits", map[string]any{"limits": map[string]string{"memory": "3G"}})
	d.want(200, &l, "GET", limits, nil)
	if l.Limits["memory"] != "2G" {
		t.Errorf("a refused change was made: %+v", l)
	}
}

// TestARaceIsStreamedAndItsWinnerPromoted costs some 2 s.
func TestARaceIsStreamedAndItsWinnerPromoted(t *testing.T) {
	d := newDesk(t)
	q := map[string]any{
		"sandbox": map[string]any{"name": "r"}, "attempts": []string{"echo 1 > n; echo said", "echo 3 > n", "exit 4", "echo 3 > n"},
		"check": "test -s n", "score": "cat n",
	}
	r := d.want(200, nil, "POST", "/v1/races", q, "Accept", ndjsonType)
	states := map[int][]string{}
	var result *RaceResult
	for line := range strings.Lines(r.body) {
		var ev RaceEvent
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			t.Fatal(err)
		}
		switch {
		case ev.Type == "attempt" && result == nil:
			states[ev.Attempt.Attempt] = append(states[ev.Attempt.Attempt], ev.Attempt.State)
		case ev.Type == "result":
			result = ev.Result
		default:
			t.Errorf("%+v", ev)
		}
	}
	if result == nil || result.Winner != 2 && result.Winner != 4 || len(result.Attempts) != 4 || len(result.Identical) != 1 {
		t.Fatalf("%+v", result)
	}
	for number, last := range map[int]string{1: "passed", 2: "passed", 3: "failed", 4: "passed"} {
		if got := states[number]; len(got) < 2 || got[len(got)-1] != last {
			t.Errorf("the states of attempt %d are %q", number, got)
		}
	}
	if one := result.Attempts[0]; one.Output != "said\n" || one.Sandbox != "" || *one.Exit != 0 || *one.Score != 1 {
		t.Errorf("%+v", one)
	}
	d.want(200, nil, "POST", "/v1/sandboxes/"+result.Sandbox+"/promote", nil)
	if data, err := os.ReadFile(d.work + "/n"); err != nil || string(data) != "3\n" {
		t.Errorf("%q, %v", data, err)
	}
	d.only(result.Sandbox)
	d.want(204, nil, "DELETE", "/v1/sandboxes/"+result.Sandbox, nil)

	var first RaceResult
	d.want(200, &first, "POST", "/v1/races", map[string]any{"attempts": []string{"exit 1", "true"}, "first": true})
	if first.Winner != 2 {
		t.Errorf("%+v", first)
	}
	d.want(204, nil, "DELETE", "/v1/sandboxes/"+first.Sandbox, nil)
	for _, bad := range []map[string]any{
		{"attempts": []string{"true"}, "lower": true},
		{"attempts": []string{"true"}, "first": true, "score": "echo 1"},
		{"attempts": []string{""}},
		{"attempts": []string{"true"}, "timeout": "soon"},
		{"attempts": []string{"true"}, "sandbox": map[string]any{"workspace": "relative"}},
	} {
		d.want(400, nil, "POST", "/v1/races", bad)
	}
	d.want(422, nil, "POST", "/v1/races", map[string]any{"attempts": []string{}})

	// If the caller goes, nothing is left.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	gone, err := d.try(ctx, "POST", "/v1/races", map[string]any{"attempts": []string{"exec sleep 600", "exec sleep 600"}}, "Accept", ndjsonType)
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Body.Close()
	for events := json.NewDecoder(gone.Body); ; {
		var ev RaceEvent
		if err := events.Decode(&ev); err != nil {
			t.Fatal(err)
		}
		if ev.Attempt != nil && ev.Attempt.State == "running" {
			break
		}
	}
	cancel()
	waitFor(t, "the removal of the attempts", func() bool {
		var page struct{ Sandboxes []Sandbox }
		d.want(200, &page, "GET", "/v1/sandboxes", nil)
		return len(page.Sandboxes) == 0
	})
}

// only fails the test unless these are the sandboxes.
func (d *desk) only(names ...string) {
	d.t.Helper()
	var page struct{ Sandboxes []Sandbox }
	d.want(200, &page, "GET", "/v1/sandboxes", nil)
	var got []string
	for _, s := range page.Sandboxes {
		got = append(got, s.Name)
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		d.t.Errorf("the sandboxes are %q, want %q", got, names)
	}
}

// TestAJobIsSubmittedAndApproved costs some 2 s.
func TestAJobIsSubmittedAndApproved(t *testing.T) {
	d := newDesk(t)
	store := token.Open(d.state)
	texts := map[string]string{}
	for _, scope := range token.Scopes() {
		text, err := store.New(token.Token{Name: string(scope), Scopes: []token.Scope{scope}})
		if err != nil {
			t.Fatal(err)
		}
		texts[string(scope)] = text
	}
	const jobs = "/v1/jobs"
	var j Job
	d.want(201, &j, "POST", jobs, map[string]any{"command": "echo out; echo new > b.txt", "check": "echo checked; grep new b.txt", "within": "1h", "class": "urgent"})
	if j.Job != 1 || j.State != "queued" || j.Then != "hold" || j.Deadline == nil || j.Class != "urgent" {
		t.Errorf("%+v", j)
	}
	d.token = texts["run"]
	for _, then := range []map[string]any{{"then": "promote"}, {"then": "stages", "stage": "x"}} {
		then["command"] = "true"
		d.want(403, nil, "POST", jobs, then)
	}
	d.want(201, nil, "POST", jobs, map[string]any{"args": []string{"false"}})
	d.want(201, nil, "POST", jobs, map[string]any{"command": "true"})
	d.want(200, &j, "POST", jobs+"/3/cancel", nil)
	if j.State != "cancelled" {
		t.Errorf("%+v", j)
	}
	d.want(403, nil, "POST", jobs+"/1/approve", nil)
	d.want(403, nil, "POST", jobs+"/1/reject", nil)
	d.token = ""
	d.snapfs("job", "work", "--once")
	j = Job{}
	d.want(200, &j, "GET", jobs+"/1", nil)
	if j.State != "waiting" || j.Plan == "" || j.Sandbox == "" || j.Exit == nil || j.Checked == nil || *j.Checked != 0 {
		t.Fatalf("%+v", j)
	}
	var out JobOutput
	d.want(200, &out, "GET", jobs+"/1/output", nil)
	if out.Output != "out\n" || out.Check != "checked\nnew\n" {
		t.Errorf("%+v", out)
	}
	var page struct {
		Jobs []Job
		Next int
	}
	d.want(200, &page, "GET", jobs+"?limit=2", nil)
	if len(page.Jobs) != 2 || page.Next != 2 || page.Jobs[1].State != "failed" {
		t.Errorf("%+v", page)
	}
	d.want(200, &page, "GET", jobs+"?state=waiting", nil)
	if len(page.Jobs) != 1 || page.Jobs[0].Job != 1 {
		t.Errorf("%+v", page)
	}
	d.want(409, nil, "POST", jobs+"/1/approve", map[string]any{"plan": strings.Repeat("0", 64)})
	d.want(400, nil, "POST", jobs+"/1/approve", map[string]any{"plan": j.Plan[:3]})
	d.token = texts["promote"]
	j2 := Job{}
	d.want(200, &j2, "POST", jobs+"/1/approve", map[string]any{"plan": j.Plan[:12]})
	d.token = ""
	if data, err := os.ReadFile(d.work + "/b.txt"); err != nil || string(data) != "new\n" || j2.State != "done" || j2.Promotion == "" {
		t.Errorf("%q, %v, %+v", data, err, j2)
	}
	d.want(201, &j, "POST", jobs, map[string]any{"command": "echo other > b.txt"})
	d.snapfs("job", "work", "--once")
	d.want(200, &j2, "POST", jobs+"/"+strconv.Itoa(j.Job)+"/reject", nil)
	if data, err := os.ReadFile(d.work + "/b.txt"); err != nil || string(data) != "new\n" || j2.State != "rejected" {
		t.Errorf("%q, %v, %+v", data, err, j2)
	}
	d.only()
	d.want(400, nil, "POST", jobs+"/1/cancel", nil)
	d.want(204, nil, "DELETE", jobs+"/1", nil)
	d.want(404, nil, "GET", jobs+"/1", nil)
	for _, bad := range []map[string]any{
		{}, {"command": "true", "queue": "1s"}, {"command": "true", "stage": "x"}, {"command": "true", "within": "-1s"}, {"command": "true", "sandbox": map[string]any{"name": "x"}},
	} {
		d.want(400, nil, "POST", jobs, bad)
	}
}
