//go:build linux

package api

import (
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/serve/client"
	"github.com/snapfs/snapfs/serve/token"
)

func (d *desk) triggers() client.ListTriggersResponse {
	d.t.Helper()
	return *call(d.c.ListTriggersWithResponse(d.t.Context())).is(d, 200)
}

// A client makes, lists and removes triggers like those of snapfs job submit --every, --when-changed and --webhook:
// workers submit their jobs, each change is an event, and a webhook's secret is shown once.
func TestTriggersAreMadeListedAndRemovedOverHTTP(t *testing.T) {
	d := newDesk(t)
	submits := client.NewJob{Args: []string{"sh", "-c", "echo x > made # hunter2hunter2"}, Within: "2h", Sandbox: &client.NewSandbox{Env: []string{"KEY_TOKEN=hunter2hunter2"}}}
	add := func(status int, q client.NewTrigger) client.Trigger {
		t.Helper()
		q.Job = submits
		r := call(d.c.NewTriggerWithResponse(t.Context(), nil, q)).is(d, status)
		if status != http.StatusCreated {
			return client.Trigger{}
		}
		return *r.JSON201
	}
	if r := d.triggers(); r.JSON200.Triggers == nil || len(r.JSON200.Triggers) != 0 {
		t.Errorf("at first: %s", r.Body)
	}
	for _, wrong := range []client.NewTrigger{
		{}, {Every: "1h", Webhook: true}, {Every: "soon"}, {Every: "1ms"}, {Every: "-1h"}, {WhenChanged: "/etc/*"},
	} {
		add(http.StatusBadRequest, wrong)
	}
	every := add(http.StatusCreated, client.NewTrigger{Every: "24h"})
	if every.Trigger != 1 || every.Every != "1d" || every.Next.IsZero() || every.Within != "2h" || every.Secret != "" || every.Then != client.TriggerThenHold {
		t.Errorf("a schedule: %+v", every)
	}
	changed := add(http.StatusCreated, client.NewTrigger{WhenChanged: "*.txt"})
	hook := add(http.StatusCreated, client.NewTrigger{Webhook: true})
	if len(hook.Secret) < 40 || !hook.Webhook || hook.Trigger != 3 {
		t.Errorf("a webhook: %+v", hook)
	}
	r := d.triggers()
	if list := r.JSON200.Triggers; len(list) != 3 || list[1].WhenChanged != "*.txt" || list[2].Secret != "" || strings.Contains(string(r.Body), "hunter2") {
		t.Errorf("three: %s", r.Body)
	}
	if text := d.snapfs("job", "triggers"); strings.Count(text, "\n") != 4 || !strings.Contains(text, "every 1d") {
		t.Errorf("the command lists %s", text)
	}

	file, past := d.work+"/a.txt", time.Now().Add(-time.Hour)
	if err := errors.Join(os.WriteFile(file, []byte("two\n"), 0o644), os.Chtimes(file, past, past)); err != nil {
		t.Fatal(err)
	}
	for len(d.jobs(client.ListJobsParams{}).Jobs) == 0 { // what has just changed counts once it rests
		d.snapfs("job", "work", "--once")
	}
	if jobs := d.jobs(client.ListJobsParams{}).Jobs; len(jobs) != 1 || jobs[0].State != client.JobStateWaiting || jobs[0].Deadline.IsZero() {
		t.Errorf("after a change: %+v", jobs)
	}
	if text := call(d.c.ListJobsWithResponse(t.Context(), nil)).is(d, 200).Body; strings.Contains(string(text), "hunter2") {
		t.Errorf("a job shows a secret: %s", text)
	}
	if list := d.triggers().JSON200.Triggers; *list[1].Last != 1 {
		t.Errorf("after a change: %+v", list[1])
	}

	call(d.c.RemoveTriggerWithResponse(t.Context(), changed.Trigger)).is(d, http.StatusNoContent)
	call(d.c.RemoveTriggerWithResponse(t.Context(), changed.Trigger)).is(d, http.StatusNotFound)
	if list := d.triggers().JSON200.Triggers; len(list) != 2 {
		t.Errorf("after a removal: %+v", list)
	}
	var made []string
	if err := events.Read(d.state, 0, func(e events.Event) error {
		if e.Data.Trigger > 0 {
			made = append(made, strings.TrimPrefix(e.Type, "snapfs.")+" "+e.Data.Name)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{"trigger.created schedule", "trigger.created files", "trigger.created webhook", "job.changed queued", "trigger.removed files"}
	if !slices.Equal(made, want) {
		t.Errorf("the events are %q, want %q", made, want)
	}
}

// A trigger promotes long after its request, so it needs the scope that the promotion would.
func TestATriggerNeedsTheScopesOfItsJob(t *testing.T) {
	d := newDesk(t)
	with := func(scopes ...token.Scope) {
		t.Helper()
		text, err := token.Open(d.state).New(token.Token{Name: "t" + string(scopes[len(scopes)-1]), Scopes: scopes})
		if err != nil {
			t.Fatal(err)
		}
		d.token = text
	}
	add := func(status int, then client.NewJobThen) {
		t.Helper()
		call(d.c.NewTriggerWithResponse(t.Context(), nil, client.NewTrigger{Every: "1h", Job: client.NewJob{Command: "true", Then: then}})).is(d, status)
	}
	with(token.Read)
	add(http.StatusForbidden, "")
	d.triggers()
	call(d.c.RemoveTriggerWithResponse(t.Context(), 1)).is(d, http.StatusForbidden)
	with(token.Run)
	add(http.StatusForbidden, client.NewJobThenPromote)
	hook := client.NewTrigger{Webhook: true, Job: client.NewJob{Command: "true"}} // whose secret approves jobs
	call(d.c.NewTriggerWithResponse(t.Context(), nil, hook)).is(d, http.StatusForbidden)
	add(http.StatusCreated, "")
	call(d.c.ListTriggersWithResponse(t.Context())).is(d, http.StatusForbidden)
	with(token.Run, token.Promote)
	add(http.StatusCreated, client.NewJobThenPromote)
	call(d.c.NewTriggerWithResponse(t.Context(), nil, hook)).is(d, http.StatusCreated)
	both := d.token
	run, err := token.Open(d.state).New(token.Token{Name: "runs", Scopes: []token.Scope{token.Run}})
	if err != nil {
		t.Fatal(err)
	}
	d.token = run
	for _, n := range []int64{2, 3} { // one that promotes, and a webhook
		call(d.c.RemoveTriggerWithResponse(t.Context(), n)).is(d, http.StatusForbidden)
	}
	call(d.c.RemoveTriggerWithResponse(t.Context(), 1)).is(d, http.StatusNoContent)
	d.token = both
	for _, n := range []int64{2, 3} {
		call(d.c.RemoveTriggerWithResponse(t.Context(), n)).is(d, http.StatusNoContent)
	}
}
