//go:build linux

package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/serve/client"
	"github.com/snapfs/snapfs/serve/token"
)

// TestAWholeSession makes a sandbox, works in it, promotes the result and undoes that. It costs some 1.5 s.
func TestAWholeSession(t *testing.T) {
	d, ctx := newDesk(t), t.Context()
	s := call(d.c.NewSandboxWithResponse(ctx, nil, client.NewSandbox{Name: "t1", Limits: map[string]string{"memory": "1G"}})).is(d, 201).JSON201
	if s.Name != "t1" || s.Workspace != d.work || s.Network != "none" || s.Limits["memory"] != "1G" {
		t.Errorf("%+v", s)
	}
	call(d.c.NewSandboxWithResponse(ctx, nil, client.NewSandbox{Name: "t1"})).is(d, 409)
	r := d.exec("t1", "cat a.txt; echo err >&2; echo two > b.txt; exit 3")
	if r.Exit != 3 || r.Stdout.Text != "one\n" || r.Stderr.Text != "err\n" || r.TimedOut {
		t.Errorf("%+v", r)
	}
	r = d.run("t1", client.ExecRequest{Args: []string{"cat"}, Stdin: "in", Dir: "/"})
	if r.Stdout.Text != "in" || r.Exit != 0 {
		t.Errorf("%+v", r)
	}
	r = d.run("t1", client.ExecRequest{Command: "printf '\\377'; sleep 60", Timeout: "100ms"})
	if !r.TimedOut || r.Exit != 143 || string(r.Stdout.Base64) != "\xff" {
		t.Errorf("%+v", r)
	}
	call(d.c.NewSnapshotWithResponse(ctx, "t1", nil, client.SnapshotInputBody{Name: "good"})).is(d, 201)
	d.exec("t1", "rm b.txt a.txt")
	call(d.c.RollbackWithResponse(ctx, "t1", nil, client.RollbackInputBody{To: "good"})).is(d, 204)
	diff := call(d.c.DiffWithResponse(ctx, "t1", nil)).is(d, 200).JSON200
	if len(diff.Changes) != 1 || diff.Changes[0].Path != "b.txt" || diff.Changes[0].Kind != client.ChangeKindAdded {
		t.Errorf("%+v", diff)
	}
	shown := call(d.c.DiffWithResponse(ctx, "t1", &client.DiffParams{Accept: new(pageType)})).is(d, 200)
	if p := string(shown.Body); !strings.HasPrefix(p, "<!doctype html>") || !strings.Contains(p, "Changes in t1") ||
		shown.HTTPResponse.Header.Get("Content-Security-Policy") != "sandbox allow-scripts" {
		t.Errorf("%q %.200q", shown.HTTPResponse.Header, p)
	}
	if p := call(d.c.DiffWithResponse(ctx, "t1", &client.DiffParams{Accept: new(patchType)})).is(d, 200); !strings.Contains(string(p.Body), "+two") {
		t.Errorf("%s", p.Body)
	}
	call(d.c.DriftWithResponse(ctx, "t1")).is(d, 200)
	d.promotesAndUndoes()
	fork := call(d.c.ForkSandboxWithResponse(ctx, "t1", nil, client.ForkInputBody{Name: "t2"})).is(d, 201).JSON201
	if fork.Origin != "t1" {
		t.Errorf("%+v", fork)
	}
	call(d.c.RefreshWithResponse(ctx, "t1", nil, client.RefreshInputBody{})).is(d, 200)
	page := call(d.c.ListSandboxesWithResponse(ctx, &client.ListSandboxesParams{Limit: new(int64(1))})).is(d, 200).JSON200
	if len(page.Sandboxes) != 1 || page.Next != "t1" {
		t.Errorf("%+v", page)
	}
	counts := string(call(d.c.MetricsWithResponse(ctx)).is(d, 200).Body)
	if !strings.Contains(counts, `snapfs_sandboxes{state="idle"} 2`) || !strings.Contains(counts, `snapfs_http_requests_total{route="fork-sandbox",status="201"} 1`) {
		t.Error(counts)
	}
	call(d.c.RemoveSandboxWithResponse(ctx, "t1")).is(d, 204)
	call(d.c.GetSandboxWithResponse(ctx, "t1")).is(d, 404)
	d.want(404, nil, "GET", "/nothing", nil)
	d.want(405, nil, "PATCH", "/v1/sandboxes", nil)
}

// promotesAndUndoes promotes the file b.txt of the sandbox t1 by its plan, and undoes that.
func (d *desk) promotesAndUndoes() {
	d.t.Helper()
	ctx := d.t.Context()
	plan := call(d.c.PlanWithResponse(ctx, "t1", nil, client.Select{})).is(d, 200).JSON200
	if len(plan.Steps) == 0 || plan.Fingerprint == "" {
		d.t.Errorf("%+v", plan)
	}
	call(d.c.PromoteWithResponse(ctx, "t1", nil, client.PromoteInputBody{Plan: strings.Repeat("0", 64)})).is(d, 409)
	done := call(d.c.PromoteWithResponse(ctx, "t1", nil, client.PromoteInputBody{Plan: plan.Fingerprint})).is(d, 200).JSON200
	if data, err := os.ReadFile(d.work + "/b.txt"); err != nil || string(data) != "two\n" {
		d.t.Errorf("promoted: %q, %v", data, err)
	}
	call(d.c.UndoWithResponse(ctx, done.Id, nil, client.UndoInputBody{})).is(d, 200)
	if _, err := os.Lstat(d.work + "/b.txt"); err == nil {
		d.t.Error("the undo left the file")
	}
	d.want(404, nil, "POST", "/v1/promotions/none/undo", nil) // without a body
}

// TestFilesAreReadAndWrittenInside costs some 0.5 s.
func TestFilesAreReadAndWrittenInside(t *testing.T) {
	d, ctx := newDesk(t), t.Context()
	d.make("t1")
	d.start(client.CommandLine{Command: "exec sleep 600"}) // so that the rest is quick
	big := strings.Repeat("0123456789abcdef", 60_000)
	d.write(200, client.WriteFileParams{Path: "new/big", Parents: new(true), Mode: new("600")}, big)
	if d.read("new/big", 0) != big {
		t.Error("the content differs")
	}
	if r := d.read("new/big", 959990); r != big[959990:] {
		t.Errorf("got %q", r)
	}
	d.write(409, client.WriteFileParams{Path: "a.txt", New: new(true)}, "x")
	d.write(200, client.WriteFileParams{Path: "a.txt"}, "inside")
	d.exec("t1", "ln -s /etc link; ln -s /proc/self/root magic; mkfifo pipe")
	for path, status := range map[string]int{
		"link/hostname": 200, "magic/etc/hostname": 400, "/proc/self/root/etc/hostname": 400, "/proc/self/exe": 400, "pipe": 400, "/dev/zero": 400,
		"none": 404, "a.txt/x": 400, "../../../../../../../../etc/hostname": 200, strings.Repeat("x", 5000): 400, "": 422, "a\x00b": 400,
	} {
		if r, err := d.c.ReadFileWithResponse(ctx, "t1", &client.ReadFileParams{Path: path}); err != nil || r.StatusCode() != status {
			t.Errorf("%.40q: %v: %+v", path, err, r)
		}
	}
	call(d.c.MakeDirectoryWithResponse(ctx, "t1", nil, client.MakeDirInputBody{Path: "d"})).is(d, 201)
	call(d.c.MakeDirectoryWithResponse(ctx, "t1", nil, client.MakeDirInputBody{Path: "d"})).is(d, 409)
	call(d.c.RenameFileWithResponse(ctx, "t1", nil, client.RenameInputBody{From: "new/big", To: "d/big"})).is(d, 204)
	list := call(d.c.ListFilesWithResponse(ctx, "t1", &client.ListFilesParams{Path: ".", Limit: new(int64(2))})).is(d, 200).JSON200
	if len(list.Entries) != 2 || list.Entries[1].Name != "d" || list.Entries[1].Type != client.InfoTypeDirectory || list.Next != "d" {
		t.Errorf("%+v", list)
	}
	call(d.c.RemoveFileWithResponse(ctx, "t1", &client.RemoveFileParams{Path: "d"})).is(d, 409)
	call(d.c.RemoveFileWithResponse(ctx, "t1", &client.RemoveFileParams{Path: "d", All: new(true)})).is(d, 204)
	call(d.c.StatFileWithResponse(ctx, "t1", &client.StatFileParams{Path: "d"})).is(d, 404)
	if data, err := os.ReadFile(d.work + "/a.txt"); err != nil || string(data) != "one\n" {
		t.Errorf("the real file: %q, %v", data, err)
	}
}

// TestABackgroundCommandIsAwaited costs some 0.3 s.
func TestABackgroundCommandIsAwaited(t *testing.T) {
	d, ctx := newDesk(t), t.Context()
	d.make("t1")
	if c := d.start(client.CommandLine{Command: "read x < wait; echo $x", Dir: "."}); c.Id != 1 {
		t.Errorf("%+v", c)
	}
	d.start(client.CommandLine{Args: []string{"sh", "-c", "echo two; exit 2"}})
	c := call(d.c.GetCommandWithResponse(ctx, "t1", 2, &client.GetCommandParams{Wait: new("20s")})).is(d, 200).JSON200
	if c.Running || c.Exit == nil || *c.Exit != 2 {
		t.Errorf("%+v", c)
	}
	if r := call(d.c.CommandOutputWithResponse(ctx, "t1", 2, &client.CommandOutputParams{Follow: new(true)})).is(d, 200); string(r.Body) != "two\n" {
		t.Errorf("got %q", r.Body)
	}
	call(d.c.GetCommandWithResponse(ctx, "t1", 9, nil)).is(d, 404)
	call(d.c.StopSandboxWithResponse(ctx, "t1", nil)).is(d, 204)
	all := call(d.c.ListCommandsWithResponse(ctx, "t1")).is(d, 200).JSON200
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
	d.make("t1")
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
	d.make("t1")
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
	again := func(name, key string, status int) *client.NewSandboxResponse {
		t.Helper()
		return call(d.c.NewSandboxWithResponse(t.Context(), &client.NewSandboxParams{IdempotencyKey: &key}, client.NewSandbox{Name: name})).is(d, status)
	}
	first, second := again("t1", "k1", 201), again("t1", "k1", 201)
	if first.JSON201.Id != second.JSON201.Id || second.HTTPResponse.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%+v, %+v", first, second)
	}
	again("t2", "k1", 422)
	again("t1", "k2", 409)
	// Two at once, of which one waits for the other.
	run := client.ExecRequest{Command: "sleep 0.2; echo x >> runs; wc -l < runs"}
	results := make(chan string, 2)
	for range 2 {
		go func() {
			r, err := d.c.ExecWithResponse(context.Background(), "t1", &client.ExecParams{IdempotencyKey: new("k3")}, run)
			if err := client.Err(r, err); err != nil {
				results <- err.Error()
				return
			}
			results <- r.JSON200.Stdout.Text
		}()
	}
	for range 2 {
		if got := <-results; got != "1\n" {
			t.Errorf("got %q", got)
		}
	}
	// A stream is not repeated.
	for range 2 {
		last := client.ExecEvent{}
		for event, err := range client.Stream[client.ExecEvent](d.c.Exec(t.Context(), "t1", &client.ExecParams{IdempotencyKey: new("k4"), Accept: new(ndjsonType)}, run)) {
			if err != nil {
				t.Fatal(err)
			}
			last = event
		}
		if last.Type != client.ExecEventTypeExit {
			t.Errorf("%+v", last)
		}
	}
	if r := d.exec("t1", "wc -l < runs"); r.Stdout.Text != "3\n" {
		t.Errorf("got %q", r.Stdout.Text)
	}
}

// TestAnUploadThatBreaksOffLeavesTheOldFile costs some 0.2 s.
func TestAnUploadThatBreaksOffLeavesTheOldFile(t *testing.T) {
	d := newDesk(t)
	d.make("t1")
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
		return !call(d.c.GetSandboxWithResponse(t.Context(), "t1")).is(d, 200).JSON200.Running
	})
	if r := d.read("a.txt", 0); r != "one\n" {
		t.Errorf("got %q", r)
	}
	waitFor(t, "the end of the half file", func() bool { // of which the process that writes it hears a little later
		return d.exec("t1", "ls -A").Stdout.Text == "a.txt\n"
	})
}
