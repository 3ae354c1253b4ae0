//go:build linux

package api

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/serve/token"
)

// TestJobsAreDecidedOnOverHTTP: on the plan that the caller has seen, with the scope to promote.
func TestJobsAreDecidedOnOverHTTP(t *testing.T) {
	d := newDesk(t)
	var list struct{ Jobs []Job }
	d.want(200, &list, "GET", "/v1/jobs", nil)
	if list.Jobs == nil || len(list.Jobs) != 0 {
		t.Errorf("at first: %v", list.Jobs)
	}
	for i := range 3 {
		d.snapfs("job", "submit", "--env", "SECRET=x", "--", "sh", "-c", fmt.Sprintf("echo x > job%d", i+1))
	}
	d.want(200, nil, "POST", "/v1/jobs/3/cancel", nil)
	d.snapfs("job", "work", "--once")
	d.want(200, &list, "GET", "/v1/jobs?state=waiting", nil)
	if len(list.Jobs) != 2 || list.Jobs[0].Job != 1 || list.Jobs[0].Changes != 1 || list.Jobs[0].Plan == "" || list.Jobs[0].Sandbox != "job-1" {
		t.Fatalf("waiting: %+v", list.Jobs)
	}
	if r := d.want(200, &list, "GET", "/v1/jobs?ended=true", nil); len(list.Jobs) != 3 || strings.Contains(r.body, "SECRET") {
		t.Errorf("all: %s", r.body)
	}
	text, err := token.Open(d.state).New(token.Token{Name: "agent", Scopes: []token.Scope{token.Read, token.Run}})
	if err != nil {
		t.Fatal(err)
	}
	d.token = text
	for _, path := range []string{"/v1/jobs/1/approve", "/v1/jobs/1/reject"} {
		d.want(http.StatusForbidden, nil, "POST", path, nil)
	}
	d.token = ""
	d.want(http.StatusConflict, nil, "POST", "/v1/jobs/1/approve", map[string]string{"plan": "another"})
	if _, err := os.Stat(d.work + "/job1"); err == nil {
		t.Error("another plan was promoted")
	}
	var j Job
	d.want(200, &j, "POST", "/v1/jobs/1/approve", map[string]string{"plan": list.Jobs[0].Plan})
	if text, err := os.ReadFile(d.work + "/job1"); err != nil || string(text) != "x\n" || j.State != "done" || j.Promotion == "" {
		t.Errorf("approved: %q %v %+v", text, err, j)
	}
	d.want(200, &j, "POST", "/v1/jobs/2/reject", nil)
	if _, err := os.Stat(d.work + "/job2"); err == nil || j.State != "rejected" {
		t.Errorf("rejected: %v %+v", err, j)
	}
	d.want(http.StatusBadRequest, nil, "POST", "/v1/jobs/2/reject", nil)
	d.want(http.StatusNotFound, nil, "POST", "/v1/jobs/99/approve", nil)
}
