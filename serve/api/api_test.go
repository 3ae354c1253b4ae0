//go:build linux

package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/serve/token"
)

// TestAWholeSession makes a sandbox, works in it, promotes the result and undoes that. It costs some 1.5 s.
func TestAWholeSession(t *testing.T) {
	d := newDesk(t)
	const t1 = "/v1/sandboxes/t1"
	var s Sandbox
	d.want(201, &s, "POST", "/v1/sandboxes", map[string]any{"name": "t1", "limits": map[string]string{"memory": "1G"}})
	if s.Name != "t1" || s.Workspace != d.work || s.Network != "none" || s.Limits["memory"] != "1G" {
		t.Errorf("%+v", s)
	}
	d.want(409, nil, "POST", "/v1/sandboxes", map[string]any{"name": "t1"})
	r := d.exec("t1", "cat a.txt; echo err >&2; echo two > b.txt; exit 3")
	if r.Exit != 3 || r.Stdout.Text != "one\n" || r.Stderr.Text != "err\n" || r.TimedOut {
		t.Errorf("%+v", r)
	}
	d.want(200, &r, "POST", t1+"/exec", map[string]any{"args": []string{"cat"}, "stdin": "in", "dir": "/"})
	if r.Stdout.Text != "in" || r.Exit != 0 {
		t.Errorf("%+v", r)
	}
	d.want(200, &r, "POST", t1+"/exec", map[string]any{"command": "printf '\\377'; sleep 60", "timeout": "100ms"})
	if !r.TimedOut || r.Exit != 143 || string(r.Stdout.Base64) != "\xff" {
		t.Errorf("%+v", r)
	}
	d.want(201, nil, "POST", t1+"/snapshots", map[string]any{"name": "good"})
	d.exec("t1", "rm b.txt a.txt")
	d.want(204, nil, "POST", t1+"/rollback", map[string]any{"to": "good"})
	var diff Diff
	d.want(200, &diff, "GET", t1+"/diff", nil)
	if len(diff.Changes) != 1 || diff.Changes[0].Path != "b.txt" || diff.Changes[0].Kind != "added" {
		t.Errorf("%+v", diff)
	}
	if p := d.want(200, nil, "GET", t1+"/diff", nil, "Accept", patchType); !strings.Contains(p.body, "+two") {
		t.Error(p.body)
	}
	var drift Drift
	d.want(200, &drift, "GET", t1+"/drift", nil)
	var plan Plan
	d.want(200, &plan, "POST", t1+"/plan", nil)
	if len(plan.Steps) == 0 || plan.Fingerprint == "" {
		t.Errorf("%+v", plan)
	}
	d.want(409, nil, "POST", t1+"/promote", map[string]any{"plan": strings.Repeat("0", 64)})
	var done Promoted
	d.want(200, &done, "POST", t1+"/promote", map[string]any{"plan": plan.Fingerprint})
	if data, err := os.ReadFile(d.work + "/b.txt"); err != nil || string(data) != "two\n" {
		t.Errorf("promoted: %q, %v", data, err)
	}
	d.want(200, nil, "POST", "/v1/promotions/"+done.ID+"/undo", nil)
	if _, err := os.Lstat(d.work + "/b.txt"); err == nil {
		t.Error("the undo left the file")
	}
	d.want(404, nil, "POST", "/v1/promotions/none/undo", nil)
	var fork Sandbox
	d.want(201, &fork, "POST", t1+"/fork", map[string]any{"name": "t2"})
	if fork.Origin != "t1" {
		t.Errorf("%+v", fork)
	}
	d.want(200, nil, "POST", t1+"/refresh", nil)
	var page struct {
		Sandboxes []Sandbox
		Next      string
	}
	d.want(200, &page, "GET", "/v1/sandboxes?limit=1", nil)
	if len(page.Sandboxes) != 1 || page.Next != "t1" {
		t.Errorf("%+v", page)
	}
	if r := d.want(200, nil, "GET", "/metrics", nil); !strings.Contains(r.body, `snapfs_sandboxes{state="idle"} 2`) || !strings.Contains(r.body, `snapfs_http_requests_total{route="fork-sandbox",status="201"} 1`) {
		t.Error(r.body)
	}
	d.want(204, nil, "DELETE", t1, nil)
	d.want(404, nil, "GET", t1, nil)
	d.want(404, nil, "GET", "/nothing", nil)
	d.want(405, nil, "PATCH", "/v1/sandboxes", nil)
}

// TestFilesAreReadAndWrittenInside costs some 0.5 s.
func TestFilesAreReadAndWrittenInside(t *testing.T) {
	d := newDesk(t)
	d.want(201, nil, "POST", "/v1/sandboxes", map[string]any{"name": "t1"})
	d.want(201, nil, "POST", "/v1/sandboxes/t1/commands", map[string]any{"command": "exec sleep 600"}) // so that the rest is quick
	big := strings.Repeat("0123456789abcdef", 60_000)
	d.want(200, nil, "PUT", file("new/big", "&parents=true&mode=600"), strings.NewReader(big))
	if r := d.want(200, nil, "GET", file("new/big"), nil); r.body != big {
		t.Error("the content differs")
	}
	if r := d.want(200, nil, "GET", file("new/big", "&offset=959990"), nil); r.body != big[959990:] {
		t.Errorf("got %q", r.body)
	}
	d.want(409, nil, "PUT", file("a.txt", "&new=true"), strings.NewReader("x"))
	d.want(200, nil, "PUT", file("a.txt"), strings.NewReader("inside"))
	d.exec("t1", "ln -s /etc link; ln -s /proc/self/root magic; mkfifo pipe")
	for path, status := range map[string]int{
		"link/hostname": 200, "magic/etc/hostname": 400, "/proc/self/root/etc/hostname": 400, "/proc/self/exe": 400, "pipe": 400, "/dev/zero": 400,
		"none": 404, "a.txt/x": 400, "../../../../../../../../etc/hostname": 200, strings.Repeat("x", 5000): 400, "": 422, "a%00b": 400,
	} {
		if r := d.do("GET", file(path), nil); r.StatusCode != status {
			t.Errorf("%.40q: status %d: %s", path, r.StatusCode, r.body)
		}
	}
	const files = "/v1/sandboxes/t1/files"
	d.want(201, nil, "POST", files+"/directories", map[string]any{"path": "d"})
	d.want(409, nil, "POST", files+"/directories", map[string]any{"path": "d"})
	d.want(204, nil, "POST", files+"/rename", map[string]any{"from": "new/big", "to": "d/big"})
	var list struct {
		Entries []struct{ Name, Type string }
		Next    string
	}
	d.want(200, &list, "GET", files+"/list?path=.&limit=2", nil)
	if len(list.Entries) != 2 || list.Entries[1].Name != "d" || list.Entries[1].Type != "directory" || list.Next != "d" {
		t.Errorf("%+v", list)
	}
	d.want(409, nil, "DELETE", files+"?path=d", nil)
	d.want(204, nil, "DELETE", files+"?path=d&all=true", nil)
	d.want(404, nil, "GET", files+"/stat?path=d", nil)
	if data, err := os.ReadFile(d.work + "/a.txt"); err != nil || string(data) != "one\n" {
		t.Errorf("the real file: %q, %v", data, err)
	}
}

// TestABackgroundCommandIsAwaited costs some 0.3 s.
func TestABackgroundCommandIsAwaited(t *testing.T) {
	d := newDesk(t)
	d.want(201, nil, "POST", "/v1/sandboxes", map[string]any{"name": "t1"})
	const commands = "/v1/sandboxes/t1/commands"
	var c Command
	d.want(201, &c, "POST", commands, map[string]any{"command": "read x < wait; echo $x", "dir": "."})
	if c.ID != 1 {
		t.Errorf("%+v", c)
	}
	d.want(201, &c, "POST", commands, map[string]any{"args": []string{"sh", "-c", "echo two; exit 2"}})
	d.want(200, &c, "GET", commands+"/2?wait=20s", nil)
	if c.Running || c.Exit == nil || *c.Exit != 2 {
		t.Errorf("%+v", c)
	}
	if r := d.want(200, nil, "GET", commands+"/2/output?follow=true", nil); r.body != "two\n" {
		t.Errorf("got %q", r.body)
	}
	d.want(404, nil, "GET", commands+"/9", nil)
	d.want(204, nil, "POST", "/v1/sandboxes/t1/stop", nil)
	var all struct{ Commands []Command }
	d.want(200, &all, "GET", commands, nil)
	if len(all.Commands) != 2 || all.Commands[0].Running {
		t.Errorf("%+v", all)
	}
}

// namesNoProfile checks that a token with the scope run names no profile: its holder has written the file itself, in a
// sandbox, and a profile that is named can show secrets. With promote, too, it works.
func (d *desk) namesNoProfile(runner string) {
	d.t.Helper()
	profile := filepath.Join(d.state, "profile.toml")
	if err := os.WriteFile(profile, []byte("[sandbox]\nexpose = [\"/etc/shadow\"]\n"), 0o600); err != nil {
		d.t.Fatal(err)
	}
	both, err := token.Open(d.state).New(token.Token{Name: "both", Scopes: []token.Scope{token.Run, token.Promote}})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, c := range []struct {
		token, name, profile string
		status               int
	}{{runner, "p1", profile, 403}, {runner, "p1", "/nowhere", 403}, {runner, "p2", "none", 201}, {both, "p3", profile, 201}} {
		d.token = c.token
		d.want(c.status, nil, "POST", "/v1/sandboxes", map[string]any{"name": c.name, "profile": c.profile})
	}
	d.want(404, nil, "POST", "/v1/sandboxes/p1/stop", nil)
	d.token = runner
	for path, body := range map[string]map[string]any{"/v1/jobs": {"command": "true"}, "/v1/races": {"attempts": []string{"true"}}, "/v1/prove": {}} {
		body["sandbox"] = map[string]any{"profile": profile}
		d.want(403, nil, "POST", path, body)
	}
}

// TestTokensPermitTheirScopesOnly costs some 0.2 s.
func TestTokensPermitTheirScopesOnly(t *testing.T) {
	d := newDesk(t)
	d.want(201, nil, "POST", "/v1/sandboxes", map[string]any{"name": "t1"})
	store := token.Open(d.state)
	tokens := map[string]string{}
	for name, tok := range map[string]token.Token{
		"reader": {Scopes: []token.Scope{token.Read}}, "runner": {Scopes: []token.Scope{token.Run}}, "old": {Scopes: token.Scopes(), Expires: time.Now().Add(-time.Hour)},
		"gone": {Scopes: token.Scopes()},
	} {
		tok.Name = name
		text, err := store.New(tok)
		if err != nil {
			t.Fatal(err)
		}
		tokens[name] = text
	}
	d.listen(Where{Listen: "127.0.0.1:0"})
	d.token = tokens["gone"]
	d.want(200, nil, "GET", "/v1/sandboxes/t1", nil)
	if err := store.Remove("gone"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		token        string
		method, path string
		status       int
	}{
		{"", "GET", "/v1/sandboxes", 401},
		{"", "GET", "/v1/events", 401},
		{"", "GET", "/healthz", 200},
		{"", "GET", "/v1/openapi.json", 200},
		{"wrong", "GET", "/v1/sandboxes", 401},
		{tokens["old"], "GET", "/v1/sandboxes", 401},
		{tokens["gone"], "GET", "/v1/sandboxes/t1", 401},
		{tokens["reader"], "GET", "/v1/sandboxes", 200},
		{tokens["reader"], "POST", "/v1/sandboxes/t1/plan", 200},
		{tokens["reader"], "DELETE", "/v1/sandboxes/t1", 403},
		{tokens["reader"], "POST", "/v1/sandboxes/t1/promote", 403},
		{tokens["runner"], "POST", "/v1/sandboxes/t1/promote", 403},
		{tokens["runner"], "GET", "/v1/sandboxes", 403},
		{tokens["runner"], "POST", "/v1/sandboxes/t1/stop", 204},
	} {
		d.token = c.token
		if r := d.want(c.status, nil, c.method, c.path, nil); c.status == 401 && r.Header.Get("WWW-Authenticate") == "" {
			t.Error("no WWW-Authenticate")
		}
	}
	d.namesNoProfile(tokens["runner"])
	d.token = tokens["reader"]
	for host, status := range map[string]int{"evil.example": 421, "evil.example:80": 421, "localhost:1": 200, "[::1]:5": 200, "127.0.0.1": 200} {
		d.want(status, nil, "GET", "/v1/sandboxes", nil, "Host", host)
	}
	// Every route but two needs a scope; the sender of a webhook signs its request.
	open := []string{"/healthz", "/v1/hooks/{trigger}"}
	for path, item := range d.api.huma.OpenAPI().Paths {
		if (item.Get != nil && item.Get.Security == nil || item.Post != nil && item.Post.Security == nil) != slices.Contains(open, path) {
			t.Errorf("%s: is it open?", path)
		}
	}
}

func TestBadPlacesToListenAreRefused(t *testing.T) {
	d := newDesk(t)
	for _, w := range []Where{
		{Listen: "0.0.0.0:0"},
		{Listen: "[::]:0"},
		{Listen: ":0"},
		{Listen: "192.0.2.1:0"},
		{Listen: "x"},
		{Socket: d.socket()},
		{Socket: d.work + "/a.txt"},
		{Socket: "/" + strings.Repeat("x", 200)},
		{Listen: "127.0.0.1:0", Cert: d.work + "/a.txt", Key: d.work + "/a.txt"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := d.api.Serve(ctx, w, func(string) { cancel() }); err == nil {
			t.Errorf("%+v is no error", w)
		}
		cancel()
	}
	if info, err := os.Lstat(d.socket()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestBadRequestsAreProblems costs some 0.2 s.
func TestBadRequestsAreProblems(t *testing.T) {
	d := newDesk(t)
	d.want(201, nil, "POST", "/v1/sandboxes", map[string]any{"name": "t1"})
	for _, c := range []struct {
		path   string
		body   any
		status int
	}{
		{"", map[string]any{"name": "../x"}, 422},
		{"", map[string]any{"name": strings.Repeat("x", 10<<10)}, 422},
		{"", map[string]any{"name": 3}, 422},
		{"", map[string]any{"unknown": 3}, 422},
		{"", map[string]any{"workspace": "relative"}, 400},
		{"", map[string]any{"workspace": d.work + "/none"}, 404},
		{"", map[string]any{"limits": map[string]string{"memory": "lots"}}, 400},
		{"", map[string]any{"limits": map[string]string{"none": "1"}}, 400},
		{"", map[string]any{"network": "allow:"}, 400},
		{"", map[string]any{"backend": "none"}, 422},
		{"/t1/exec", map[string]any{}, 400},
		{"/t1/exec", map[string]any{"command": "a", "args": []string{"b"}}, 400},
		{"/t1/exec", map[string]any{"command": "a\x00b"}, 400},
		{"/t1/exec", map[string]any{"command": "true", "timeout": "soon"}, 400},
		{"/t1/exec", map[string]any{"command": "true", "env": []string{"=x"}}, 400},
		{"/t1/rollback", map[string]any{"to": "none"}, 404},
		{"/t1/promote", map[string]any{"target": "relative"}, 400},
		{"/none/exec", map[string]any{"command": "true"}, 404},
		{"/" + strings.Repeat("x", 1000) + "/exec", map[string]any{"command": "true"}, 422},
	} {
		if r := d.do("POST", "/v1/sandboxes"+c.path, c.body); r.StatusCode != c.status || r.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%.40s %.60v: status %d, want %d: %.300s", c.path, c.body, r.StatusCode, c.status, r.body)
		}
	}
	if r := d.do("POST", "/v1/sandboxes", map[string]any{"name": strings.Repeat("x", 2<<20)}); r.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("2 MiB: status %d", r.StatusCode)
	}
	if _, err := d.try(t.Context(), "GET", "/healthz", nil, "X-Long", strings.Repeat("x", 200<<10)); err == nil {
		if r := d.do("GET", "/healthz", nil, "X-Long", strings.Repeat("x", 200<<10)); r.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("a long header: status %d", r.StatusCode)
		}
	}
}

// TestARepeatedRequestIsCarriedOutOnce costs some 0.3 s.
func TestARepeatedRequestIsCarriedOutOnce(t *testing.T) {
	d := newDesk(t)
	var first, second Sandbox
	d.want(201, &first, "POST", "/v1/sandboxes", map[string]any{"name": "t1"}, replayHeader, "k1")
	if r := d.want(201, &second, "POST", "/v1/sandboxes", map[string]any{"name": "t1"}, replayHeader, "k1"); first.ID != second.ID || r.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%+v, %+v", first, second)
	}
	d.want(422, nil, "POST", "/v1/sandboxes", map[string]any{"name": "t2"}, replayHeader, "k1")
	d.want(409, nil, "POST", "/v1/sandboxes", map[string]any{"name": "t1"}, replayHeader, "k2")
	// Two at once, of which one waits for the other.
	run := map[string]any{"command": "sleep 0.2; echo x >> runs; wc -l < runs"}
	results := make(chan string, 2)
	for range 2 {
		go func() {
			r, err := d.try(context.Background(), "POST", "/v1/sandboxes/t1/exec", run, replayHeader, "k3")
			if err != nil {
				results <- err.Error()
				return
			}
			defer r.Body.Close()
			var x ExecResult
			if err := json.NewDecoder(r.Body).Decode(&x); err != nil {
				results <- err.Error()
				return
			}
			results <- x.Stdout.Text
		}()
	}
	for range 2 {
		if got := <-results; got != "1\n" {
			t.Errorf("got %q", got)
		}
	}
	// A stream is not repeated.
	for range 2 {
		d.want(200, nil, "POST", "/v1/sandboxes/t1/exec", run, replayHeader, "k4", "Accept", ndjsonType)
	}
	if r := d.exec("t1", "wc -l < runs"); r.Stdout.Text != "3\n" {
		t.Errorf("got %q", r.Stdout.Text)
	}
}

// TestAnUploadThatBreaksOffLeavesTheOldFile costs some 0.2 s.
func TestAnUploadThatBreaksOffLeavesTheOldFile(t *testing.T) {
	d := newDesk(t)
	d.want(201, nil, "POST", "/v1/sandboxes", map[string]any{"name": "t1"})
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = w.Write([]byte("half")) // until the request has ended
		cancel()
		w.CloseWithError(errors.New("broken off"))
	}()
	if got, err := d.try(ctx, "PUT", file("a.txt"), r); err == nil {
		t.Errorf("status %d", got.StatusCode)
		_ = got.Body.Close()
	}
	waitFor(t, "the session's end", func() bool {
		var s Sandbox
		d.want(200, &s, "GET", "/v1/sandboxes/t1", nil)
		return !s.Running
	})
	if r := d.want(200, nil, "GET", file("a.txt"), nil); r.body != "one\n" {
		t.Errorf("got %q", r.body)
	}
	if r := d.exec("t1", "ls -A"); r.Stdout.Text != "a.txt\n" {
		t.Errorf("left: %q", r.Stdout.Text)
	}
}
