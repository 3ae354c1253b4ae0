//go:build linux

package api

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/serve/token"
)

// TestAStreamIsLiveAndEndsWithItsCaller costs some 0.5 s.
func TestAStreamIsLiveAndEndsWithItsCaller(t *testing.T) {
	d := newDesk(t)
	d.make("t1")
	ctx, cancel := context.WithCancel(t.Context())
	r, err := d.try(ctx, "POST", "/v1/sandboxes/t1/exec", map[string]any{"command": "echo started; exec sleep 600"}, "Accept", ndjsonType)
	if err != nil {
		t.Fatal(err)
	}
	var ev ExecEvent
	if err := json.NewDecoder(r.Body).Decode(&ev); err != nil || ev.Type != "stdout" || ev.Text != "started\n" {
		t.Errorf("%+v, %v", ev, err)
	}
	cancel()
	_ = r.Body.Close() // of a request that has ended
	waitFor(t, "the command's end", func() bool {
		return !call(d.c.GetSandboxWithResponse(t.Context(), "t1")).is(d, 200).JSON200.Running
	})

	c := d.want(200, nil, "POST", "/v1/sandboxes/t1/exec", map[string]any{"command": "printf '\\303'; sleep 0.1; printf '\\244'; exit 4"}, "Accept", "text/html, text/event-stream")
	if c.Header.Get("Content-Type") != sseType || !strings.Contains(c.body, "event: stdout\ndata: {\"type\":\"stdout\",\"text\":\"ä\"}\n\n") || !strings.Contains(c.body, `"exit":4`) {
		t.Errorf("%s: %s", c.Header.Get("Content-Type"), c.body)
	}
	d.want(422, nil, "POST", "/v1/sandboxes/t1/exec", map[string]any{"args": []string{"/no/such"}}, "Accept", ndjsonType)

	// A connection whose caller has ended its half: the caller is taken to have gone.
	half, err := net.Dial("unix", d.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	body := `{"command":"sleep 600"}`
	if _, err := io.WriteString(half, "POST /v1/sandboxes/t1/exec HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "+itoa(len(body))+"\r\n\r\n"+body); err != nil {
		t.Fatal(err)
	}
	if u, ok := half.(*net.UnixConn); !ok || u.CloseWrite() != nil {
		t.Fatal("it has no halves")
	}
	if _, err := io.Copy(io.Discard, half); err != nil {
		t.Error(err)
	}
	waitFor(t, "the command's end", func() bool {
		return !call(d.c.GetSandboxWithResponse(t.Context(), "t1")).is(d, 200).JSON200.Running
	})
}

// TestASlowCallerHoldsUpNoCommand costs some 0.3 s.
func TestASlowCallerHoldsUpNoCommand(t *testing.T) {
	d := newDesk(t)
	d.make("t1")
	r, err := d.try(t.Context(), "POST", "/v1/sandboxes/t1/exec", map[string]any{"command": "head -c 50000000 /dev/zero; echo done > done"}, "Accept", ndjsonType)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	waitFor(t, "the command's end", func() bool { // while nothing is read
		got := d.do("GET", file("done"), nil)
		return got.StatusCode == http.StatusOK
	})
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 1<<20)
	var lost, got int64
	last := ""
	for lines.Scan() {
		var ev ExecEvent
		if err := json.Unmarshal(lines.Bytes(), &ev); err != nil {
			t.Fatal(err)
		}
		got, lost, last = got+int64(len(ev.Text)), lost+ev.Bytes, ev.Type
	}
	if got+lost != 50_000_000 || lost == 0 || last != "exit" {
		t.Errorf("%d bytes and %d lost, then %s, %v", got, lost, last, lines.Err())
	}
}

// TestAStreamEndsWithItsToken costs some 0.2 s.
func TestAStreamEndsWithItsToken(t *testing.T) {
	d := newDesk(t)
	store := token.Open(d.state)
	var err error
	if d.token, err = store.New(token.Token{Name: "x", Scopes: token.Scopes()}); err != nil {
		t.Fatal(err)
	}
	d.make("t1")
	follow, err := d.try(t.Context(), "GET", "/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer follow.Body.Close()
	run, err := d.try(t.Context(), "POST", "/v1/sandboxes/t1/exec", map[string]any{"command": "sleep 600"}, "Accept", ndjsonType)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Body.Close()
	if err := store.Remove("x"); err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(run.Body); err != nil || !strings.Contains(string(data), `"type":"error"`) {
		t.Errorf("%s, %v", data, err)
	}
	if _, err := io.Copy(io.Discard, follow.Body); err != nil {
		t.Error(err)
	}
}

// TestEventsAreFollowedAndResumed costs some 0.2 s.
func TestEventsAreFollowedAndResumed(t *testing.T) {
	d := newDesk(t)
	d.want(200, nil, "GET", "/v1/events?follow=false", nil)
	r, err := d.try(t.Context(), "GET", "/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	d.make("t1")
	var ev events.Event
	if err := json.NewDecoder(r.Body).Decode(&ev); err != nil || ev.Type != events.SandboxCreated || ev.Subject != "t1" {
		t.Errorf("%+v, %v", ev, err)
	}
	d.want(201, nil, "POST", "/v1/sandboxes/t1/snapshots", nil)
	c := d.want(200, nil, "GET", "/v1/events?follow=false", nil, "Accept", sseType, "Last-Event-ID", ev.ID)
	if strings.Contains(c.body, events.SandboxCreated) || !strings.Contains(c.body, "event: "+events.SnapshotCreated+"\n") || !strings.HasPrefix(c.body, "id: ") {
		t.Error(c.body)
	}
	d.want(400, nil, "GET", "/v1/events", nil, "Last-Event-ID", "x")
}

// TestManyReadersGetEveryEvent: each on a connection of its own, while events are written, without a gap.
func TestManyReadersGetEveryEvent(t *testing.T) {
	d := newDesk(t)
	readers, each := treetest.Budget(t, 30, 400), 50
	d.want(200, nil, "GET", "/v1/events?follow=false", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var ready, reading sync.WaitGroup
	for i := range readers {
		ready.Add(1)
		reading.Go(func() {
			r, err := d.try(ctx, "GET", "/v1/events?after=0", nil)
			ready.Done()
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Body.Close()
			lines := bufio.NewScanner(r.Body)
			for n := 1; n <= each; {
				if !lines.Scan() {
					t.Errorf("reader %d: no event %d: %v", i, n, lines.Err())
					return
				}
				var ev events.Event
				if len(lines.Bytes()) == 0 {
					continue // an empty message
				}
				if err := json.Unmarshal(lines.Bytes(), &ev); err != nil || ev.Number() != uint64(n) {
					t.Errorf("reader %d: %q in place of event %d, %v", i, lines.Text(), n, err)
					return
				}
				n++
			}
		})
	}
	ready.Wait()
	log := events.New(d.state, func(text string) { t.Error(text) }, nil)
	for range each {
		log.Append(events.Event{Type: events.CommandEnded, Unwitnessed: true})
	}
	reading.Wait()
}

func itoa(n int) string { text, _ := json.Marshal(n); return string(text) }

// waitFor waits until a condition holds.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("in vain: ", what)
		}
	}
}
