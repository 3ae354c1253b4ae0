//go:build linux

package api

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/serve/client"
	"github.com/snapfs/snapfs/serve/token"
)

// TestLimitsAreShownAndSet costs some 0.3 s.
func TestLimitsAreShownAndSet(t *testing.T) {
	d, ctx := newDesk(t), t.Context()
	call(d.c.NewSandboxWithResponse(ctx, nil, client.NewSandbox{Name: "t1", Limits: map[string]string{"memory": "1G"}})).is(d, 201)
	get := func() *client.Limits {
		t.Helper()
		return call(d.c.GetLimitsWithResponse(ctx, "t1")).is(d, 200).JSON200
	}
	set := func(status int, name string, limits map[string]string) *client.Limits {
		t.Helper()
		return call(d.c.SetLimitsWithResponse(ctx, name, client.LimitsInputBody{Limits: limits})).is(d, status).JSON200
	}
	if l := get(); l.Limits["memory"] != "1G" || l.Usage != nil {
		t.Errorf("%+v", l)
	}
	d.start(client.CommandLine{Command: "exec sleep 600"})
	if l := set(200, "t1", map[string]string{"memory": "2G", "pids": "100"}); l.Limits["memory"] != "2G" || l.Limits["pids"] != "100" || l.Usage == nil {
		t.Errorf("%+v", l)
	}
	if l := set(200, "t1", map[string]string{"pids": "none"}); l.Limits["memory"] != "2G" || l.Limits["pids"] != "" {
		t.Errorf("%+v", l)
	}
	set(400, "t1", map[string]string{"memory": "3G", "nothing": "1"})
	set(400, "t1", map[string]string{"memory": "much"})
	set(422, "t1", map[string]string{})
	set(404, "none", map[string]string{"memory": "3G"})
	if l := get(); l.Limits["memory"] != "2G" {
		t.Errorf("a refused change was made: %+v", l)
	}
}

// TestProfilesAreListedAndRead: by name only, so that a token that may read gets no other file of this user.
func TestProfilesAreListedAndRead(t *testing.T) {
	d, ctx := newDesk(t), t.Context()
	list := *call(d.c.ListProfilesWithResponse(ctx)).is(d, 200).JSON200
	if !slices.ContainsFunc(list, func(p client.NamedProfile) bool {
		return p.Name == "offline" && p.Source == "built in" && p.About != ""
	}) {
		t.Errorf("%+v", list)
	}
	if p := call(d.c.GetProfileWithResponse(ctx, "offline")).is(d, 200).JSON200; p.Name != "offline" || !strings.Contains(p.Text, `net = "none"`) {
		t.Errorf("%+v", p)
	}
	call(d.c.GetProfileWithResponse(ctx, "offlin")).is(d, 404)
	file := filepath.Join(d.work, "own.toml")
	if err := os.WriteFile(file, []byte("about = \"x\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	call(d.c.GetProfileWithResponse(ctx, file)).is(d, 400)
}

// TestARaceIsStreamedAndItsWinnerPromoted costs some 2 s.
func TestARaceIsStreamedAndItsWinnerPromoted(t *testing.T) {
	d := newDesk(t)
	q := client.RaceRequest{
		Sandbox: &client.NewSandbox{Name: "r"}, Attempts: []string{"echo 1 > n; echo said", "echo 3 > n", "exit 4", "echo 3 > n"},
		Check: "test -s n", Score: "cat n",
	}
	states := map[int64][]client.RaceAttemptState{}
	var result *client.RaceResult
	for ev, err := range client.Stream[client.RaceEvent](d.c.Race(t.Context(), &client.RaceParams{Accept: new(client.NDJSON)}, q)) {
		switch {
		case err != nil:
			t.Fatal(err)
		case ev.Type == client.RaceEventTypeAttempt && result == nil:
			states[ev.Attempt.Attempt] = append(states[ev.Attempt.Attempt], ev.Attempt.State)
		case ev.Type == client.RaceEventTypeResult:
			result = ev.Result
		default:
			t.Errorf("%+v", ev)
		}
	}
	if result == nil || result.Winner != 2 && result.Winner != 4 || len(result.Attempts) != 4 || len(result.Identical) != 1 {
		t.Fatalf("%+v", result)
	}
	for number, last := range map[int64]client.RaceAttemptState{
		1: client.RaceAttemptStatePassed, 2: client.RaceAttemptStatePassed, 3: client.RaceAttemptStateFailed, 4: client.RaceAttemptStatePassed,
	} {
		if got := states[number]; len(got) < 2 || got[len(got)-1] != last {
			t.Errorf("the states of attempt %d are %q", number, got)
		}
	}
	if one := result.Attempts[0]; one.Output != "said\n" || one.Sandbox != "" || *one.Exit != 0 || *one.Score != 1 {
		t.Errorf("%+v", one)
	}
	call(d.c.PromoteWithResponse(t.Context(), result.Sandbox, nil, client.PromoteInputBody{})).is(d, 200)
	if data, err := os.ReadFile(d.work + "/n"); err != nil || string(data) != "3\n" {
		t.Errorf("%q, %v", data, err)
	}
	d.only(result.Sandbox)
	call(d.c.RemoveSandboxWithResponse(t.Context(), result.Sandbox)).is(d, 204)

	first := call(d.c.RaceWithResponse(t.Context(), nil, client.RaceRequest{Attempts: []string{"exit 1", "true"}, First: true})).is(d, 200).JSON200
	if first.Winner != 2 {
		t.Errorf("%+v", first)
	}
	call(d.c.RemoveSandboxWithResponse(t.Context(), first.Sandbox)).is(d, 204)
	kept := call(d.c.RaceWithResponse(t.Context(), nil, client.RaceRequest{
		Attempts: []string{"printf '1\n2\n' > n", "exit 1", "true"}, Score: "wc -l < n", KeepPassed: true,
	})).is(d, 200).JSON200
	if a := kept.Attempts[0]; kept.Winner != 1 || a.AddedLines == nil || *a.AddedLines != 2 || *a.DeletedLines != 1 || a.Sandbox == "" {
		t.Errorf("%+v, %+v", kept, a)
	}
	d.only(kept.Attempts[0].Sandbox, kept.Attempts[2].Sandbox)
	for _, i := range []int{0, 2} {
		call(d.c.RemoveSandboxWithResponse(t.Context(), kept.Attempts[i].Sandbox)).is(d, 204)
	}
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
		return len(call(d.c.ListSandboxesWithResponse(t.Context(), nil)).is(d, 200).JSON200.Sandboxes) == 0
	})
}

// only fails the test unless these are the sandboxes.
func (d *desk) only(names ...string) {
	d.t.Helper()
	var got []string
	for _, s := range call(d.c.ListSandboxesWithResponse(d.t.Context(), nil)).is(d, 200).JSON200.Sandboxes {
		got = append(got, s.Name)
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		d.t.Errorf("the sandboxes are %q, want %q", got, names)
	}
}

// TestAJobIsSubmittedAndApproved costs some 2 s.
func TestAJobIsSubmittedAndApproved(t *testing.T) {
	d, ctx := newDesk(t), t.Context()
	store := token.Open(d.state)
	texts := map[token.Scope]string{}
	for _, scope := range token.Scopes() {
		text, err := store.New(token.Token{Name: string(scope), Scopes: []token.Scope{scope}})
		if err != nil {
			t.Fatal(err)
		}
		texts[scope] = text
	}
	j := d.submit(201, client.NewJob{Command: "echo out; echo new > b.txt", Check: "echo checked; grep new b.txt", Within: "1h", Class: client.NewJobClassUrgent})
	if j.Job != 1 || j.State != client.JobStateQueued || j.Then != client.JobThenHold || j.Deadline.IsZero() || j.Class != client.JobClassUrgent {
		t.Errorf("%+v", j)
	}
	d.token = texts[token.Run]
	d.submit(403, client.NewJob{Command: "true", Then: client.NewJobThenPromote})
	d.submit(403, client.NewJob{Command: "true", Then: client.NewJobThenStages, Stage: "x"})
	d.submit(201, client.NewJob{Args: []string{"false"}})
	d.submit(201, client.NewJob{Command: "true"})
	if j := call(d.c.CancelJobWithResponse(ctx, 3, nil)).is(d, 200).JSON200; j.State != client.JobStateCancelled {
		t.Errorf("%+v", j)
	}
	d.approve(403, 1, "")
	d.reject(403, 1)
	d.token = ""
	d.snapfs("job", "work", "--once")
	j = d.job(1)
	if j.State != client.JobStateWaiting || j.Plan == "" || j.Sandbox == "" || j.Exit == nil || j.Checked == nil || *j.Checked != 0 {
		t.Fatalf("%+v", j)
	}
	if out := call(d.c.JobOutputWithResponse(ctx, 1)).is(d, 200).JSON200; out.Output != "out\n" || out.Check != "checked\nnew\n" {
		t.Errorf("%+v", out)
	}
	if page := d.jobs(client.ListJobsParams{Limit: new(int64(2))}); len(page.Jobs) != 2 || page.Next == nil || *page.Next != 2 || page.Jobs[1].State != client.JobStateFailed {
		t.Errorf("%+v", page)
	}
	if page := d.jobs(client.ListJobsParams{State: new(client.ListJobsParamsStateWaiting)}); len(page.Jobs) != 1 || page.Jobs[0].Job != 1 {
		t.Errorf("%+v", page)
	}
	d.approve(409, 1, strings.Repeat("0", 64))
	d.approve(400, 1, j.Plan[:3])
	d.token = texts[token.Promote]
	done := d.approve(200, 1, j.Plan[:12])
	d.token = ""
	if data, err := os.ReadFile(d.work + "/b.txt"); err != nil || string(data) != "new\n" || done.State != client.JobStateDone || done.Promotion == "" {
		t.Errorf("%q, %v, %+v", data, err, done)
	}
	j = d.submit(201, client.NewJob{Command: "echo other > b.txt"})
	d.snapfs("job", "work", "--once")
	rejected := d.reject(200, j.Job)
	if data, err := os.ReadFile(d.work + "/b.txt"); err != nil || string(data) != "new\n" || rejected.State != client.JobStateRejected {
		t.Errorf("%q, %v, %+v", data, err, rejected)
	}
	d.only()
	call(d.c.CancelJobWithResponse(ctx, 1, nil)).is(d, 400)
	call(d.c.RemoveJobWithResponse(ctx, 1)).is(d, 204)
	call(d.c.GetJobWithResponse(ctx, 1)).is(d, 404)
	for _, bad := range []client.NewJob{
		{},
		{Command: "true", Queue: "1s"},
		{Command: "true", Stage: "x"},
		{Command: "true", Within: "-1s"},
		{Command: "true", Sandbox: &client.NewSandbox{Name: "x"}},
	} {
		d.submit(400, bad)
	}
}
