package broker

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/budget"
)

// serverName is the name in the certificate of httptest.
const serverName = "example.com"

const realKey = "sk-ant-api03-REAL+value/of=the_key-0123456789"

// A world is a broker between clients and one server.
type world struct {
	t      *testing.T
	broker *Broker
	server *httptest.Server
	key    string        // the placeholder
	served chan struct{} // gets a value for each connection that the broker has served
	at     string        // the address of the server

	mu     sync.Mutex
	seen   []*http.Request
	bodies []string
	events []network.Event
}

// newWorld starts a server and a broker with rules. change may change the options.
func newWorld(t *testing.T, rules string, answer http.HandlerFunc, change func(*Options)) *world {
	t.Helper()
	w := &world{t: t, served: make(chan struct{}, 1000)}
	w.server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if isGRPC(r) { // a stream, whose body ends after its answer
			answer(rw, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		w.mu.Lock()
		w.seen = append(w.seen, r)
		w.bodies = append(w.bodies, string(body))
		w.mu.Unlock()
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		answer(rw, r)
	}))
	w.server.EnableHTTP2 = true
	w.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	w.server.StartTLS()
	w.at = w.server.Listener.Addr().String()
	t.Cleanup(w.server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(w.server.Certificate())
	parsed, err := network.Parse(rules)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Config: network.BrokerConfig{Sandbox: "fix", Secrets: []network.BrokerSecret{{Name: "KEY", Hosts: []string{serverName + ":443"}}}},
		Values: [][]byte{[]byte(realKey + "\n")}, Roots: roots, Rules: func() network.Rules { return parsed },
		Event: func(ev network.Event) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.events = append(w.events, ev)
		},
	}
	if change != nil {
		change(&o)
	}
	if w.broker, err = New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.broker.Close(); err != nil {
			t.Error(err)
		}
	})
	w.key = w.broker.Public().Placeholders["KEY"]
	return w
}

// dial returns a connection from inside to name and port, which the broker serves.
func (w *world) dial(name string, port uint16) net.Conn { return w.dialAt(name, port, 0) }

// dialAt returns a connection from inside to name and port by the base URL with the port at, or by none if that is 0.
func (w *world) dialAt(name string, port, at uint16) net.Conn {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	inside, err := l.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	outside := func(context.Context) (net.Conn, error) { return net.Dial("tcp", w.at) }
	first, err := outside(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.broker.Serve(context.Background(), inside, Target{Name: name, Port: port, At: at, First: first, Dial: outside})
		first.Close() //nolint:errcheck // as the proxy does; it may have ended
		w.served <- struct{}{}
	}()
	w.t.Cleanup(func() {
		client.Close() //nolint:errcheck // it may have ended
		select {
		case <-done:
		case <-time.After(time.Minute):
			w.t.Error("the broker serves a connection that is closed")
		}
	})
	return client
}

// roots returns the certificates that the sandbox trusts.
func (w *world) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(w.broker.Public().CA))
	return pool
}

// client returns a client inside, whose connections all go to the server's name. TLS is on port 443.
func (w *world) client(http2 bool) *http.Client {
	t := &http.Transport{
		DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
			port := uint16(443)
			if strings.HasSuffix(addr, ":80") {
				port = 80
			}
			return w.dial(serverName, port), nil
		},
		TLSClientConfig: &tls.Config{RootCAs: w.roots()}, ForceAttemptHTTP2: http2, DisableCompression: true,
	}
	w.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// do sends a request and returns the status, the response with its body, and the body.
func (w *world) do(c *http.Client, method, url, body string, headers ...string) (*http.Response, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	response, err := c.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		w.t.Fatal(err)
	}
	return response, string(text)
}

// raw sends bytes over TLS with HTTP/1 and returns the responses to them until the connection ends or n have come.
func (w *world) raw(text string, n int) []*http.Response {
	w.t.Helper()
	c := tls.Client(w.dial(serverName, 443), &tls.Config{RootCAs: w.roots(), ServerName: serverName, NextProtos: []string{"http/1.1"}})
	if _, err := io.WriteString(c, text); err != nil {
		w.t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil { // the broker ends the connection after its last response
		w.t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		w.t.Fatal(err)
	}
	var all []*http.Response
	for r := bufio.NewReader(c); len(all) < n; {
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			break
		}
		_, _ = io.Copy(io.Discard, response.Body)
		all = append(all, response)
	}
	return all
}

// serveRaw replaces the server by one with only HTTP/1. It calls serve for each connection with TLS, with the number
// of the connection from 1.
func (w *world) serveRaw(serve func(conn net.Conn, n int)) {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.at = l.Addr().String()
	secure := tls.NewListener(l, &tls.Config{Certificates: w.server.TLS.Certificates})
	var work sync.WaitGroup
	work.Go(func() {
		for n := 1; ; n++ {
			conn, err := secure.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer conn.Close()
				serve(conn, n)
			})
		}
	})
	w.t.Cleanup(func() {
		_ = l.Close()
		work.Wait()
	})
}

// requests returns what the server has seen.
func (w *world) requests() (seen []*http.Request, bodies []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen, w.bodies
}

// last returns the last event.
func (w *world) last() network.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.events) == 0 {
		return network.Event{}
	}
	return w.events[len(w.events)-1]
}

// withBudget adds a ledger with limits to the options.
func withBudget(t *testing.T, limits budget.Count, dir *string) func(*Options) {
	t.Helper()
	*dir = t.TempDir()
	if err := budget.SetLimits(*dir, limits); err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.Config.Ledger, o.Config.Metered = *dir, []string{serverName} }
}

// transportOn returns a transport on one connection.
func transportOn(conn net.Conn, w *world) *http.Transport {
	t := &http.Transport{
		DialContext:     func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		TLSClientConfig: &tls.Config{RootCAs: w.roots()},
	}
	w.t.Cleanup(t.CloseIdleConnections)
	return t
}
