package broker

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/network"
)

const baseAddress = "198.18.0.1:8001"

// withBase gives the secret a base URL, which stands for a directory of the server.
func withBase(auth string, change func(*network.BrokerSecret)) func(*Options) {
	return func(o *Options) {
		o.Config.Secrets[0].Base = &network.BrokerBase{At: 8001, Name: serverName, Port: 443, Path: "/v1", Auth: auth}
		if change != nil {
			change(&o.Config.Secrets[0])
		}
	}
}

// plain returns a client inside without TLS, whose connections all go to the base URL.
func (w *world) plain() *http.Client {
	t := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return w.dialAt(serverName, 443, 8001), nil }, DisableCompression: true,
	}
	w.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func TestABaseURLGetsTheSecretAndNamesTheServer(t *testing.T) {
	w := newWorld(t, anyRule, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Location", origin+"/v1/next")
		rw.Header().Set("Link", "<"+origin+":443/v1/p?page=2>; rel=\"next\", <https://other.example/v1/p>; rel=\"x\"")
		rw.Header().Set("X-Other", origin+"/v1/next")
		_, _ = io.WriteString(rw, r.Host+" "+r.Header.Get("X-Api-Key"))
	}, withBase("", nil))
	response, body := w.do(w.plain(), "POST", "http://"+baseAddress+"/v1/echo", "x", "X-Api-Key", w.key)
	seen, _ := w.requests()
	if len(seen) != 1 || seen[0].Header.Get("X-Api-Key") != realKey || seen[0].Host != serverName || seen[0].TLS == nil || body != serverName+" "+w.key {
		t.Fatalf("%v %q", seen, body)
	}
	if h := response.Header; h.Get("Location") != "http://"+baseAddress+"/v1/next" || h.Get("X-Other") != origin+"/v1/next" ||
		h.Get("Link") != "<http://"+baseAddress+"/v1/p?page=2>; rel=\"next\", <https://other.example/v1/p>; rel=\"x\"" {
		t.Errorf("%v", h)
	}
	if ev := w.last(); !ev.Allowed || ev.Name != serverName || ev.Path != "/v1/echo" || len(ev.Secrets) != 1 {
		t.Errorf("%+v", ev)
	}
	// Without a placeholder nothing is put in.
	if w.do(w.plain(), "GET", "http://"+baseAddress+"/v1", ""); len(w.last().Secrets) != 0 {
		t.Errorf("%+v", w.last())
	}
}

func TestABaseURLAddsTheTokenOfAPackageServer(t *testing.T) {
	for auth, want := range map[string]string{
		network.AuthBearer: "Bearer " + realKey,
		network.AuthToken:  "Basic " + base64.StdEncoding.EncodeToString([]byte("__token__:"+realKey)),
	} {
		w := newWorld(t, anyRule, func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(rw, r.Header.Get("Authorization"))
		}, withBase(auth, nil))
		_, body := w.do(w.plain(), "GET", "http://"+baseAddress+"/v1/a", "")
		if seen, _ := w.requests(); len(seen) != 1 || seen[0].Header.Get("Authorization") != want || strings.Contains(body, realKey) || strings.Contains(body, want) {
			t.Errorf("%s: %v %q", auth, seen[0].Header, body)
		}
		w.do(w.plain(), "GET", "http://"+baseAddress+"/v1/a", "", "Authorization", "Bearer own")
		if seen, _ := w.requests(); seen[1].Header.Get("Authorization") != "Bearer own" {
			t.Errorf("%s: %v", auth, seen[1].Header)
		}
		// A connection to the server itself gets none.
		w.do(w.client(false), "GET", origin+"/v1/a", "")
		if seen, _ := w.requests(); seen[2].Header.Get("Authorization") != "" {
			t.Errorf("%s: %v", auth, seen[2].Header)
		}
	}
}

func TestABaseURLRefusesOtherServersAndPaths(t *testing.T) {
	w := newWorld(t, anyRule, echo, withBase("", func(s *network.BrokerSecret) { s.Methods, s.Paths = []string{"GET"}, []string{"/v1/*"} }))
	for head, want := range map[string]string{
		"GET /v1/a HTTP/1.1\r\nHost: example.com\r\n":                              "the base URL is for example.com",
		"GET /v1/a HTTP/1.1\r\nHost: 198.18.0.1\r\n":                               "the base URL is for example.com",
		"GET /v1/a HTTP/1.1\r\nHost: 198.18.0.1:8002\r\n":                          "the base URL is for example.com",
		"GET /v1/a HTTP/1.1\r\nHost: 198.18.0.2:8001\r\n":                          "the base URL is for example.com",
		"GET /v1/a HTTP/1.1\r\nHost: \r\n":                                         "the base URL is for example.com",
		"GET /v1/a HTTP/1.0\r\n":                                                   "the base URL is for example.com",
		"GET http://198.18.0.1:8001/v1/a HTTP/1.1\r\nHost: 198.18.0.1:8001\r\n":    "is no proxy",
		"GET https://example.com/v1/a HTTP/1.1\r\nHost: example.com\r\n":           "is no proxy",
		"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n":            "is no proxy",
		"CONNECT 198.18.0.1:8001 HTTP/1.1\r\nHost: 198.18.0.1:8001\r\n":            "is no proxy",
		"OPTIONS * HTTP/1.1\r\nHost: 198.18.0.1:8001\r\n":                          "is no proxy",
		"GET /admin HTTP/1.1\r\nHost: 198.18.0.1:8001\r\n":                         "leads to /v1 only",
		"GET /v10 HTTP/1.1\r\nHost: 198.18.0.1:8001\r\n":                           "leads to /v1 only",
		"GET /v1/../admin HTTP/1.1\r\nHost: 198.18.0.1:8001\r\n":                   "leads to /v1 only",
		"GET /v1/%2e%2e/admin HTTP/1.1\r\nHost: 198.18.0.1:8001\r\n":               "leads to /v1 only",
		"POST /v1/a HTTP/1.1\r\nHost: 198.18.0.1:8001\r\nContent-Length: 0\r\n":    "not for the method POST",
		"GET /v1/a HTTP/1.1\r\nHost: 198.18.0.1:8001\r\nUpgrade: websocket\r\n":    "an upgrade to",
		"GET /v1/a HTTP/1.1\r\nHost: 198.18.0.1:8001\r\nX-Http-Method: DELETE\r\n": "names another method",
		"TRACE /v1/a HTTP/1.1\r\nHost: 198.18.0.1:8001\r\n":                        "TRACE is refused",
	} {
		conn := w.dialAt(serverName, 443, 8001)
		if _, err := io.WriteString(conn, head+"Connection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		if err != nil || !strings.Contains(string(answer), want) || !strings.HasPrefix(string(answer), "HTTP/1.") || strings.Contains(string(answer[:12]), " 2") {
			t.Errorf("%q: %v %s", head, err, answer)
		}
		if ev := w.last(); ev.Allowed || !strings.Contains(ev.Why, want) {
			t.Errorf("%q: event %+v", head, ev)
		}
	}
	// TLS, and a port that is no base URL, are closed.
	if err := tls.Client(w.dialAt(serverName, 443, 8001), &tls.Config{RootCAs: w.roots(), ServerName: serverName}).Handshake(); err == nil || !strings.Contains(w.last().Why, "TLS, to a base URL") {
		t.Errorf("%v %+v", err, w.last())
	}
	if n, err := w.dialAt(serverName, 443, 8002).Read(make([]byte, 1)); err == nil || n > 0 {
		t.Errorf("%d, %v", n, err)
	}
	if seen, _ := w.requests(); len(seen) > 0 {
		t.Errorf("the server got %d requests", len(seen))
	}
	if _, _, ok := w.broker.Base(8002); ok {
		t.Error("there is another base URL")
	}
}
