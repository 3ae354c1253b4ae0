package broker

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/network"
)

// usedAtMost waits until requests hold at most n bytes of bodies, and at least one if n is not 0.
func (m *bodyMemory) usedAtMost(t *testing.T, n int64) {
	t.Helper()
	used := int64(-1)
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		m.mu.Lock()
		used = m.used
		m.mu.Unlock()
		if used <= n && (used > 0 || n == 0) {
			return
		}
	}
	t.Fatalf("bodies hold %d bytes; want %d", used, n)
}

// TestHeldBodiesHaveOneBound: bodies that the proxy reads before it sends them share a bound. One more is refused, with
// the reason in the answer and in an event, and is sent once memory is free again.
func TestHeldBodiesHaveOneBound(t *testing.T) {
	const most, length = 1 << 20, 700 << 10
	w := newWorld(t, "POST "+serverName, func(http.ResponseWriter, *http.Request) {}, func(o *Options) { o.Config.Secrets[0].Body = true })
	w.broker.memory.most = most
	c := w.client(true)
	post := func(body io.Reader, size int64) (int, string, http.Header) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, origin+"/v1/x", body)
		if err != nil {
			t.Error(err)
			return 0, "", nil
		}
		r.ContentLength = size
		response, err := c.Do(r)
		if err != nil {
			t.Error(err)
			return 0, "", nil
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Error(err)
		}
		return response.StatusCode, string(text), response.Header
	}
	body := strings.Repeat("x", length)
	slow, end := io.Pipe()
	first := make(chan int, 1)
	go func() {
		status, _, _ := post(slow, length)
		first <- status
	}()
	if _, err := end.Write([]byte(body[:1])); err != nil {
		t.Fatal(err)
	}
	w.broker.memory.usedAtMost(t, length)
	for _, size := range []int64{length, -1} { // also one whose length nobody knows before
		status, text, header := post(strings.NewReader(body), size)
		if status != http.StatusServiceUnavailable || !strings.Contains(text, "other requests of the sandbox hold 700K of the 1M") || header.Get("Retry-After") != "1" {
			t.Errorf("%d %s %v", status, text, header)
		}
	}
	w.broker.memory.usedAtMost(t, length) // the refused ones hold nothing
	w.mu.Lock()
	refused := 0
	for _, ev := range w.events {
		if ev.Kind == network.HTTP && !ev.Allowed && strings.Contains(ev.Why, "other requests of the sandbox hold") {
			refused++
		}
	}
	w.mu.Unlock()
	if refused != 2 {
		t.Errorf("%d events of a refusal; want 2", refused)
	}
	if _, err := end.Write([]byte(body[1:])); err != nil {
		t.Fatal(err)
	}
	end.Close() //nolint:errcheck // it never fails
	if status := <-first; status != http.StatusOK {
		t.Errorf("the first request: %d", status)
	}
	w.broker.memory.usedAtMost(t, 0)
	for _, size := range []int64{length, -1} {
		if status, text, _ := post(strings.NewReader(body), size); status != http.StatusOK {
			t.Errorf("%d %s", status, text)
		}
	}
	w.broker.memory.usedAtMost(t, 0)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.bodies) != 3 || w.bodies[0] != body || w.bodies[1] != body || w.bodies[2] != body {
		t.Errorf("the server got %d bodies, or others than were sent", len(w.bodies))
	}
}

// TestABodyDoesNotGrowBeyondItsBound: placeholders are shorter than a long secret, so that a body with many of them
// would become many times as long.
func TestABodyDoesNotGrowBeyondItsBound(t *testing.T) {
	w := newWorld(t, "POST "+serverName, func(http.ResponseWriter, *http.Request) {}, func(o *Options) {
		o.Config.Secrets[0].Body, o.Values[0] = true, []byte(strings.Repeat("secret-", 2000))
	})
	body := strings.Repeat(w.key, maxBody/13000)
	response, err := w.client(true).Post(origin+"/v1/x", "text/plain", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(string(text), "longer than the 32 MiB") {
		t.Errorf("%s %.200s %v", response.Status, text, err)
	}
	w.broker.memory.usedAtMost(t, 0)
}
