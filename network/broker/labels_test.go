package broker

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/fingerprint"
)

// TestDecodedBodiesCountAsHeld: a body that is decoded to be searched for labelled content has many times the memory of
// the one that came. Together with the others it keeps to the bound of what requests hold.
func TestDecodedBodiesCountAsHeld(t *testing.T) {
	const most, length, decoded = 2 << 20, 1200 << 10, 700 << 10
	build := fingerprint.NewBuilder(nil)
	if err := build.Add(fingerprint.Source{Kind: fingerprint.Secret, Name: "env"}, strings.NewReader("API_KEY=sk_live_9fKq27+xPz/41")); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, "POST "+serverName, func(http.ResponseWriter, *http.Request) {}, func(o *Options) { o.Labels = build.Set() })
	w.broker.memory.most = most
	c := w.client(true)
	post := func(body io.Reader, coding string, size int64) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, origin+"/v1/x", body)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		r.ContentLength = size
		r.Header.Set("Content-Encoding", coding)
		response, err := c.Do(r)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Error(err)
		}
		return response.StatusCode, string(text)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(make([]byte, decoded)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	small := func() (int, string) { return post(bytes.NewReader(packed.Bytes()), "gzip", int64(packed.Len())) }
	if status, text := small(); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	slow, end := io.Pipe()
	first := make(chan int, 1)
	go func() {
		status, _ := post(slow, "identity", length)
		first <- status
	}()
	if _, err := end.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	w.broker.memory.usedAtMost(t, length)
	if status, text := small(); status != http.StatusServiceUnavailable || !strings.Contains(text, "other requests of the sandbox hold") {
		t.Errorf("%d %s", status, text)
	}
	w.broker.memory.usedAtMost(t, length) // the refused one holds nothing
	if _, err := end.Write(bytes.Repeat([]byte("x"), length-1)); err != nil {
		t.Fatal(err)
	}
	end.Close() //nolint:errcheck // it never fails
	if status := <-first; status != http.StatusOK {
		t.Errorf("the first request: %d", status)
	}
	w.broker.memory.usedAtMost(t, 0)
	if status, text := small(); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	w.broker.memory.usedAtMost(t, 0)
	if len(w.broker.searches) != 0 {
		t.Error("a search is counted after its end")
	}
}
