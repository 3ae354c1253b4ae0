//go:build linux

package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/serve/client"
	"github.com/snapfs/snapfs/serve/token"
)

// TestJobsAreDecidedOnOverHTTP: on the plan that the caller has seen, with the scope to promote.
func TestJobsAreDecidedOnOverHTTP(t *testing.T) {
	d := newDesk(t)
	if list := d.jobs(client.ListJobsParams{}); list.Jobs == nil || len(list.Jobs) != 0 {
		t.Errorf("at first: %v", list.Jobs)
	}
	for i := range 3 {
		d.snapfs("job", "submit", "--env", "SECRET=x", "--", "sh", "-c", fmt.Sprintf("echo x > job%d", i+1))
	}
	call(d.c.CancelJobWithResponse(t.Context(), 3, nil)).is(d, 200)
	d.snapfs("job", "work", "--once")
	waiting := d.jobs(client.ListJobsParams{State: new(client.ListJobsParamsStateWaiting)}).Jobs
	if len(waiting) != 2 || waiting[0].Job != 1 || *waiting[0].Changes != 1 || waiting[0].Plan == "" || waiting[0].Sandbox != "job-1" {
		t.Fatalf("waiting: %+v", waiting)
	}
	if r := call(d.c.ListJobsWithResponse(t.Context(), nil)).is(d, 200); len(r.JSON200.Jobs) != 3 || strings.Contains(string(r.Body), "SECRET") {
		t.Errorf("all: %s", r.Body)
	}
	text, err := token.Open(d.state).New(token.Token{Name: "agent", Scopes: []token.Scope{token.Read, token.Run}})
	if err != nil {
		t.Fatal(err)
	}
	d.token = text
	d.approve(http.StatusForbidden, 1, "")
	d.reject(http.StatusForbidden, 1)
	d.token = ""
	d.approve(http.StatusConflict, 1, "another-plan")
	if _, err := os.Stat(d.work + "/job1"); err == nil {
		t.Error("another plan was promoted")
	}
	j := d.approve(200, 1, waiting[0].Plan)
	if text, err := os.ReadFile(d.work + "/job1"); err != nil || string(text) != "x\n" || j.State != client.JobStateDone || j.Promotion == "" {
		t.Errorf("approved: %q %v %+v", text, err, j)
	}
	j = d.reject(200, 2)
	if _, err := os.Stat(d.work + "/job2"); err == nil || j.State != client.JobStateRejected {
		t.Errorf("rejected: %v %+v", err, j)
	}
	d.reject(http.StatusBadRequest, 2)
	d.approve(http.StatusNotFound, 99, "")
}

// TestAWebhookNeedsItsSignatureAndNoToken: on TCP, where every other request needs one.
func TestAWebhookNeedsItsSignatureAndNoToken(t *testing.T) {
	d := newDesk(t)
	var made struct{ Secret string }
	if err := json.Unmarshal([]byte(d.snapfs("job", "submit", "--json", "--webhook", "--", "sh", "-c", "echo x > hooked")), &made); err != nil || made.Secret == "" {
		t.Fatal(err)
	}
	d.listen(Where{Listen: "127.0.0.1:0"})
	d.want(http.StatusUnauthorized, nil, "GET", "/v1/jobs", nil)
	call := func(status int, to any, body any, secret string) {
		t.Helper()
		var data []byte
		if body != nil {
			var err error
			if data, err = json.Marshal(body); err != nil {
				t.Fatal(err)
			}
		}
		mac, now := hmac.New(sha256.New, []byte(secret)), time.Now().Unix()
		fmt.Fprintf(mac, "%d.%s", now, data)
		d.want(status, to, "POST", "/v1/hooks/1", body, "X-Snapfs-Signature", fmt.Sprintf("t=%d,v1=%s", now, hex.EncodeToString(mac.Sum(nil))))
	}
	d.want(http.StatusForbidden, nil, "POST", "/v1/hooks/1", nil)
	call(http.StatusForbidden, nil, map[string]string{"action": "submit"}, "wrong")
	var j Job
	call(200, &j, nil, made.Secret)
	if j.Job != 1 || j.State != "queued" {
		t.Fatalf("%+v", j)
	}
	d.snapfs("job", "work", "--once")
	call(http.StatusBadRequest, nil, map[string]any{"action": "approve", "job": 1}, made.Secret)
	var shown struct{ Plan string }
	if err := json.Unmarshal([]byte(d.snapfs("job", "show", "--json", "1")), &shown); err != nil || shown.Plan == "" {
		t.Fatalf("%v %+v", err, shown)
	}
	call(200, &j, map[string]any{"action": "approve", "job": 1, "plan": shown.Plan}, made.Secret)
	if text, err := os.ReadFile(d.work + "/hooked"); err != nil || string(text) != "x\n" || j.State != "done" {
		t.Errorf("approved: %q %v %+v", text, err, j)
	}
}

// Strangers that begin requests of webhooks and never end them hinder no client with a token. Cost: 0.2 s.
func TestUnfinishedWebhooksTakeNoSlotOfOthers(t *testing.T) {
	d := newDesk(t)
	d.listen(Where{Listen: "127.0.0.1:0"})
	text, err := token.Open(d.state).New(token.Token{Name: "reader", Scopes: []token.Scope{token.Read}})
	if err != nil {
		t.Fatal(err)
	}
	d.token = text
	address := strings.TrimPrefix(d.base, "http://")
	for range maxCalls + 5 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := fmt.Fprintf(conn, "POST /v1/hooks/1 HTTP/1.1\r\nHost: %s\r\nContent-Length: 500\r\n\r\nx", address); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		d.want(http.StatusOK, nil, "GET", "/v1/sandboxes", nil)
	}
}

// A profile that a request names was perhaps written by the client itself, in a sandbox. It lets no job run without a
// sandbox. Cost: 0.3 s.
func TestAClientsProfileRunsNoJobOnTheHost(t *testing.T) {
	d := newDesk(t)
	profile := d.work + "/direct.toml"
	if err := os.WriteFile(profile, []byte("[direct]\ncommands = [\"touch direct\"]\nwhen = \"risky\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.submit(201, client.NewJob{Args: []string{"touch", "direct"}, Sandbox: &client.NewSandbox{Profile: profile}})
	d.snapfs("job", "work", "--once")
	if j := d.job(1); j.State != client.JobStateWaiting || j.WithoutSandbox != "" {
		t.Errorf("%+v", j)
	}
	if _, err := os.Stat(d.work + "/direct"); err == nil {
		t.Error("it ran on the host")
	}
}
