package broker

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/network"
)

func TestAPaceAllowsItsRate(t *testing.T) {
	var p pace
	rate := network.Rate{N: 3, Seconds: 60}
	now := time.Now()
	for i, c := range []struct{ after, wait time.Duration }{
		{0, 0},
		{0, 0},
		{0, 0},
		{0, 20 * time.Second},
		{5 * time.Second, 15 * time.Second},
		{15 * time.Second, 0},
		{0, 20 * time.Second},
		{time.Hour, 0},
		{0, 0},
		{0, 0},
		{0, 20 * time.Second}, // no more than one period's requests are saved
	} {
		now = now.Add(c.after)
		if wait := p.take("a", rate, now); (wait - c.wait).Abs() > time.Millisecond {
			t.Fatalf("request %d waits %v, not %v", i, wait, c.wait)
		}
	}
	if wait := p.take("b", rate, now); wait != 0 {
		t.Errorf("another rule waits %v", wait)
	}
	if wait := p.take("a", network.Rate{N: 4, Seconds: 60}, now); wait != 0 {
		t.Errorf("with another rate it waits %v", wait)
	}
}

// unsized hides the length of a body, so that it is sent in chunks.
type unsized struct{ io.Reader }

func TestRulesBoundRequests(t *testing.T) {
	w := newWorld(t, "GET "+serverName+"/slow+rate=1/h,POST "+serverName+"/up+body=1000B", func(rw http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(rw, strings.Repeat("x", int(n)))
	}, nil)
	for _, http2 := range []bool{false, true} {
		c := w.client(http2)
		response, body := w.do(c, http.MethodGet, origin+"/slow", "")
		if first := !http2; first != (response.StatusCode == http.StatusOK) {
			t.Errorf("%s %s", response.Status, body)
		}
		response, body = w.do(c, http.MethodGet, origin+"/slow", "")
		if response.StatusCode != http.StatusTooManyRequests || !strings.Contains(body, "the rate of the rule GET "+serverName+"/slow+rate=1/h is reached") || len(response.Header.Get("Retry-After")) != 4 {
			t.Errorf("%s %s %v", response.Status, body, response.Header)
		}
		for _, size := range []int{0, 1, 1000, 1001, 1 << 20} {
			text := bytes.Repeat([]byte("y"), size)
			for _, body := range []io.Reader{bytes.NewReader(text), unsized{bytes.NewReader(text)}} {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, origin+"/up", body)
				if err != nil {
					t.Fatal(err)
				}
				response, err := c.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				got, _ := io.ReadAll(response.Body)
				response.Body.Close() //nolint:errcheck // a test
				want := http.StatusOK
				if size > 1000 {
					want = http.StatusRequestEntityTooLarge
				}
				if response.StatusCode != want || size <= 1000 && len(got) != size || size > 1000 && !strings.Contains(string(got), "larger than the 1000B of the rule POST "+serverName+"/up+body=1000B") {
					t.Errorf("%d bytes: %s %.200s", size, response.Status, got)
				}
			}
		}
	}
	if ev := w.last(); ev.Allowed || !strings.Contains(ev.Why, "larger than") {
		t.Errorf("%+v", ev)
	}
	for _, body := range mustRequests(w) {
		if len(body) > 1000 {
			t.Errorf("the server got %d bytes", len(body))
		}
	}
}

func mustRequests(w *world) []string {
	_, bodies := w.requests()
	return bodies
}
