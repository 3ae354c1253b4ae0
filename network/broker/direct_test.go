package broker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const allowed = "GET,HEAD,POST https://" + serverName + "/*"

// respond answers each request on conn with what text returns for its number from 1, until that is "".
func respond(conn net.Conn, text func(n int) string) {
	in := bufio.NewReader(conn)
	for n := 1; ; n++ {
		q, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, q.Body)
		answer := text(n)
		if answer == "" {
			return
		}
		if _, err := io.WriteString(conn, answer); err != nil || strings.Contains(answer, "Connection: close") {
			return
		}
	}
}

// withLength returns a response with a body.
func withLength(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// Requests without a body share one connection to a server with HTTP/1, and each gets its own response, in every form.
func TestRequestsShareAConnectionToTheServer(t *testing.T) {
	w := newWorld(t, allowed, nil, nil)
	answers := []string{
		withLength("one"),
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n3\r\ntwo\r\n0\r\nX-End: yes\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + withLength("three"),
		"HTTP/1.1 204 No Content\r\n\r\n",
		withLength(""),
		withLength(strings.Repeat("six", 100_000)),
		"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end",
	}
	var connections atomic.Int32
	w.serveRaw(func(conn net.Conn, n int) {
		connections.Store(int32(n))
		respond(conn, func(n int) string { return answers[n-1] })
	})
	c := w.client(false)
	for i, want := range []string{"one", "two", "three", "", "", strings.Repeat("six", 100_000), "until the end"} {
		r, got := w.do(c, http.MethodGet, "https://"+serverName+"/", "")
		if r.StatusCode >= 300 || got != want {
			t.Errorf("response %d is %d with %.40q, want %.40q", i+1, r.StatusCode, got, want)
		}
		if i == 1 && r.Trailer.Get("X-End") != "yes" {
			t.Errorf("the trailer is %v", r.Trailer)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections to the server", n)
	}
	if r, got := w.do(c, http.MethodGet, "https://"+serverName+"/", ""); got != "one" {
		t.Errorf("after the server closed the connection: %s with %q", r.Status, got)
	}
}

// What a server sends unasked after a response, at once or later, is not taken for the response to the next request.
func TestUnaskedResponseIsDropped(t *testing.T) {
	for name, later := range map[string]time.Duration{"at once": 0, "later": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, allowed, nil, nil)
			sent := make(chan struct{}, 10)
			w.serveRaw(func(conn net.Conn, n int) {
				respond(conn, func(int) string {
					answer, forged := withLength(fmt.Sprint("of connection ", n)), withLength("forged")
					if later == 0 {
						sent <- struct{}{}
						return answer + forged
					}
					time.AfterFunc(later, func() {
						_, _ = io.WriteString(conn, forged)
						sent <- struct{}{}
					})
					return answer
				})
			})
			c := w.client(false)
			for n := 1; n <= 3; n++ {
				if _, got := w.do(c, http.MethodGet, "https://"+serverName+"/", ""); got != fmt.Sprint("of connection ", n) {
					t.Errorf("response %d is %q", n, got)
				}
				<-sent
			}
		})
	}
}

// A request on a connection that the server closes meanwhile is sent again, once, and only where nothing was answered.
func TestRequestIsRepeatedOnANewConnection(t *testing.T) {
	w := newWorld(t, allowed, nil, nil)
	w.serveRaw(func(conn net.Conn, n int) {
		respond(conn, func(request int) string {
			switch {
			case request == 1:
				return withLength(fmt.Sprint("of connection ", n))
			case n == 1:
				return ""
			default:
				return "HTTP/1.1 200"
			}
		})
	})
	c := w.client(false)
	for n := 1; n <= 2; n++ {
		if r, got := w.do(c, http.MethodGet, "https://"+serverName+"/", ""); got != fmt.Sprint("of connection ", n) {
			t.Errorf("request %d: %s %q", n, r.Status, got)
		}
	}
}

// A response whose head is endless, or that breaks off, is refused, and one that breaks off in its body is cut.
func TestBrokenResponse(t *testing.T) {
	for name, answer := range map[string]string{
		"a long head":   "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Long: "+strings.Repeat("x", 1000)+"\r\n", 1000) + "\r\n",
		"no head":       "HTTP/1.1 200 O",
		"other bytes":   "220 mail.example ESMTP\r\n\r\n",
		"two lengths":   "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
		"only interims": strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 20),
		"a switch":      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, allowed, nil, nil)
			w.serveRaw(func(conn net.Conn, _ int) {
				respond(conn, func(int) string {
					_, _ = io.WriteString(conn, answer)
					return ""
				})
			})
			if r, got := w.do(w.client(false), http.MethodGet, "https://"+serverName+"/", ""); r.StatusCode != http.StatusBadGateway {
				t.Errorf("%s %.100q", r.Status, got)
			}
		})
	}
	w := newWorld(t, allowed, nil, nil)
	w.serveRaw(func(conn net.Conn, _ int) {
		respond(conn, func(int) string {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart")
			return ""
		})
	})
	r, err := w.client(false).Get("https://" + serverName + "/")
	if err != nil {
		return // cut before its head was sent
	}
	defer r.Body.Close()
	if got, err := io.ReadAll(r.Body); err == nil {
		t.Errorf("a response that breaks off came as %q", got)
	}
}

// A client that goes away ends its request at the server.
func TestClientThatGoesAwayEndsItsRequest(t *testing.T) {
	w := newWorld(t, allowed, nil, nil)
	came, ended := make(chan struct{}), make(chan struct{})
	w.serveRaw(func(conn net.Conn, _ int) {
		respond(conn, func(int) string {
			close(came)
			_, _ = conn.Read(make([]byte, 1)) // until the broker closes it
			close(ended)
			return ""
		})
	})
	ctx, cancel := context.WithCancel(t.Context())
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+serverName+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if r, err := w.client(false).Do(q); err == nil {
			_ = r.Body.Close()
		}
	}()
	<-came
	cancel()
	<-done
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the request goes on")
	}
}
