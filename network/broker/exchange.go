package broker

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/httprule"
	"github.com/snapfs/snapfs/network/placeholder"
)

// Bounds of one connection from a sandbox whose HTTP requests the proxy reads: times, bytes, and connections
// to the server. At a limit of time the connection is closed, a longer head or body is refused, and a request
// waits for one of the connections to the server.
const (
	handshakeTime = 30 * time.Second
	headTime      = 60 * time.Second
	idleTime      = 5 * time.Minute
	maxHead       = 256 << 10
	maxBody       = 32 << 20 // of a body that is held, for its tokens or to put secrets in
	maxServers    = 64       // connections to the server for one connection from inside
)

// An exchange handles one connection from a sandbox, and as an http.Handler decides on each request on it and
// sends it to the server.
type exchange struct {
	broker    *Broker
	to        Target
	base      *secret // with the base URL by which the connection came, or nil
	tls       bool
	transport *http.Transport
	ctx       context.Context //nolint:containedctx // of the connection: requests end with it, where the proxy cuts it
	requests  sync.WaitGroup  // requests that are being handled

	// direct and multiplexed are for a client with HTTP/1, which has one request at a time.
	direct      *directConn // or nil
	multiplexed bool        // the server has HTTP/2

	mu    sync.Mutex
	first net.Conn // of the target, until it is used
	spare net.Conn // with TLS, see dialTLS; or nil
	ended bool     // the client has closed the connection
}

// enter counts a request among those that the end of the connection waits for. It returns false if the client has
// closed the connection already: then the request must not be sent.
func (c *exchange) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.requests.Add(1)
	}
	return !c.ended
}

// wait waits for the requests that are still being handled after the client has closed the connection: some are
// read to their end for the model tokens used, by connections to the server that close when the exchange ends.
func (c *exchange) wait() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.requests.Wait()
}

// serve ends TLS on inside, a connection from the sandbox, and handles the HTTP requests on it, until it
// ends.
func (c *exchange) serve(ctx context.Context, inside net.Conn) error {
	c.first = c.to.First
	held := &peeked{Conn: inside, r: bufio.NewReaderSize(inside, 4<<10), done: make(chan struct{})}
	defer held.Close() //nolint:errcheck // it has ended
	b, err := held.r.Peek(1)
	if err != nil {
		return nil // the client sent nothing
	}
	c.tls = b[0] == 0x16
	if c.tls && c.base != nil {
		c.refused(network.Event{Why: "TLS, to a base URL, which is plain HTTP"})
		return nil
	}
	if !c.tls && (b[0] < 'A' || b[0] > 'Z') && b[0] != '\r' && b[0] != '\n' {
		c.refused(network.Event{Why: "neither TLS nor HTTP, to a name whose requests are read"})
		return nil
	}
	c.ctx, c.transport = ctx, c.newTransport()
	defer c.wait()
	server := &http.Server{
		Handler: c, ReadHeaderTimeout: headTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHead,
		BaseContext: func(net.Listener) context.Context { return ctx }, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		DisableGeneralOptionsHandler: true, TLSConfig: &tls.Config{NextProtos: []string{"h2", "http/1.1"}},
	}
	var serve net.Conn = held
	if c.tls {
		serve = tls.Server(held, &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetConfigForClient: c.hello,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.broker.authority.certificate(c.to.Name) },
		})
	}
	stop := context.AfterFunc(ctx, func() { _ = held.Close() })
	defer stop()
	err = server.Serve(&oneListener{conn: serve, done: held.done})
	if errors.Is(err, errServed) {
		return nil
	}
	return err
}

// hello refuses a TLS client that asks for another server than the connection was allowed for. Otherwise it
// returns nil, which leaves the TLS configuration as it is.
func (c *exchange) hello(h *tls.ClientHelloInfo) (*tls.Config, error) {
	if h.ServerName != "" && network.Fold(h.ServerName) != c.to.Name {
		why := fmt.Sprintf("the server name is %.100q, not %s", h.ServerName, c.to.Name)
		c.refused(network.Event{Why: why})
		return nil, errors.New(why)
	}
	return nil, nil //nolint:nilnil // the configuration stays
}

func (c *exchange) close() {
	if c.transport != nil {
		c.transport.CloseIdleConnections()
	}
	if c.direct != nil {
		_ = c.direct.conn.Close() // with the alert of TLS that ends the connection
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range []net.Conn{c.first, c.spare} {
		if conn != nil {
			_ = conn.Close()
		}
	}
}

// newTransport returns an HTTP client for the server of the connection. It reaches only this server, and
// verifies its certificate.
func (c *exchange) newTransport() *http.Transport {
	return &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dialRaw(ctx) },
		DialTLSContext:    c.dialTLS,
		ForceAttemptHTTP2: true, DisableCompression: true, MaxConnsPerHost: maxServers, MaxIdleConnsPerHost: maxServers,
		IdleConnTimeout: idleTime, MaxResponseHeaderBytes: maxHead, ExpectContinueTimeout: time.Second,
	}
}

// clientTLS returns the TLS configuration for connections to the server.
func (c *exchange) clientTLS() *tls.Config {
	return &tls.Config{
		ServerName: c.to.Name, RootCAs: c.broker.options.Roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
	}
}

// event returns a network event about the request q: allowed by rule, or refused for the reason why if that
// is not "".
func (c *exchange) event(q network.Request, rule, why string) network.Event {
	return network.Event{Method: q.Method, Path: q.Path, Allowed: why == "", Rule: rule, Why: why}
}

func (c *exchange) refused(ev network.Event) {
	ev.Kind, ev.Name, ev.Port, ev.ID = network.HTTP, c.to.Name, c.to.Port, c.to.ID
	c.broker.options.Event(ev)
}

// A refusal says why a request of the sandbox is not sent to the server, or has no proper response, and with
// which HTTP status it is answered.
type refusal struct {
	status int
	why    string
	rule   string
	// spent is the limit of the budget that has no room for the request whatever becomes of the others, or nil.
	spent *network.SpentLimit
	// again is set if the same request may be allowed a little later.
	again bool
	// after is the number of seconds after which it may be allowed; 0 means one.
	after int
	// failed is set if the request was allowed, and the server did not answer as it must.
	failed bool
}

// ServeHTTP decides on a request of the sandbox, sends it to the server and passes the response on, or
// answers with a refusal.
func (c *exchange) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !c.enter() {
		return
	}
	defer c.requests.Done()
	defer func() { _ = r.Body.Close() }() // one that is held in memory gives it up
	q := network.Request{Name: c.to.Name, Port: c.to.Port, TLS: c.secure(), Method: r.Method}
	no := c.check(r, &q)
	if no == nil {
		var rule string
		if rule, no = c.rule(q); no == nil {
			no = c.broker.bound(r, rule)
		}
		if no == nil {
			no = c.labelled(r, &q)
		}
		if no == nil {
			no = c.send(w, r, q, rule)
		}
		if no != nil {
			no = cmp.Or(tooLong(r, rule), no)
		}
	}
	if no != nil {
		c.refuse(w, r, q, no)
	}
}

// refuse answers the client's request r with the refusal no, and logs it with q, the same request for the network
// rules. The body has the form in which clients of AI models read errors; a call of gRPC gets a status of gRPC.
func (c *exchange) refuse(w http.ResponseWriter, r *http.Request, q network.Request, no *refusal) {
	if q.Path != "" && placeholder.Find([]byte(q.Path)) >= 0 {
		q.Path = "" // the path is in the log
	}
	ev := c.event(q, no.rule, no.why)
	ev.Failed, ev.Spent = no.failed, no.spent
	ev.Allowed = no.failed
	c.refused(ev)
	why := "snapfs: " + no.why
	text, _ := json.Marshal(map[string]any{"type": "error", "error": map[string]string{"type": "snapfs_refused", "code": "snapfs_refused", "message": why}}) // texts
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Should-Retry", strconv.FormatBool(no.again)) // clients of AI models heed it
	if no.again {
		h.Set("Retry-After", strconv.Itoa(max(1, no.after)))
	}
	if !strings.ContainsFunc(why, func(r rune) bool { return r < ' ' || r > '~' }) {
		h.Set("X-Snapfs-Refused", why)
	}
	if isGRPC(r) {
		answerGRPC(w, no.status, why)
		return
	}
	w.WriteHeader(no.status)
	_, _ = w.Write(append(text, '\n')) // the client may have gone
}

// check returns a refusal for a request that is not clearly for the server of the connection, or that a
// server may read in another way. It sets the path of q to that of r in plain form.
func (c *exchange) check(r *http.Request, q *network.Request) *refusal {
	if no := c.checkHost(r); no != nil {
		return no
	}
	switch {
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		return &refusal{status: http.StatusMethodNotAllowed, why: "the method " + r.Method + " is refused"}
	case r.Header.Get("Upgrade") != "":
		return &refusal{status: http.StatusForbidden, why: fmt.Sprintf("an upgrade to %.40q, whose messages cannot be checked, is refused", r.Header.Get("Upgrade"))}
	}
	if name := overridden(r); name != "" {
		return &refusal{status: http.StatusForbidden, why: "the header " + name + ", which names another method than the request's, is refused"}
	}
	path := r.URL.EscapedPath()
	if r.RequestURI == "*" {
		path = "*"
	}
	if path == "" {
		path = "/"
	}
	clean, err := httprule.Clean(path)
	if err != nil {
		return &refusal{status: http.StatusBadRequest, why: err.Error()}
	}
	q.Path = clean
	if strings.Contains(clean, placeholder.Mark) {
		return &refusal{status: http.StatusForbidden, why: "a placeholder in the path: secrets are put into headers and the query"}
	}
	return c.checkBase(*q)
}

// overridden returns the name of a header, such as X-HTTP-Method-Override, by which a server may give the
// request another method than the one that a network rule has allowed, or "". Some servers take an underscore
// in a header for a hyphen.
func overridden(r *http.Request) string {
	for name, values := range r.Header {
		switch strings.ToLower(strings.ReplaceAll(name, "_", "-")) {
		case "x-http-method-override", "x-http-method", "x-method-override":
			if slices.ContainsFunc(values, func(v string) bool { return !strings.EqualFold(strings.TrimSpace(v), r.Method) }) {
				return name
			}
		}
	}
	return ""
}

// isHost reports whether host, as a request has it, is the name of the connection's server, with or without
// the port.
func (c *exchange) isHost(host string) bool {
	if name, port, err := net.SplitHostPort(host); err == nil {
		if port != strconv.Itoa(int(c.to.Port)) {
			return false
		}
		host = name
	}
	return network.Fold(host) == c.to.Name
}

// rule returns the network rule that allows the HTTP request q of the sandbox, or that would allow the connection if a
// person has allowed it, or a refusal if neither does.
func (c *exchange) rule(q network.Request) (string, *refusal) {
	rule, ok := c.broker.options.Rules().Request(q)
	if !ok && c.to.Once && !c.broker.Names(q.Name, q.Port) { // else a secret, a budget or a rule with methods has since been set for this server
		return c.to.Rule, nil
	}
	if !ok {
		return "", &refusal{status: http.StatusForbidden, why: fmt.Sprintf("no rule allows %s %s on %s:%d", q.Method, q.Path, q.Name, q.Port)}
	}
	return rule, nil
}

// unreachable returns the refusal for err, an error of the connection to the server. It replaces secrets in
// the message, by pairs.
func unreachable(err error, pairs []pair) *refusal {
	what := "the server did not answer: "
	var invalid *tls.CertificateVerificationError
	if errors.As(err, &invalid) {
		what = "the certificate of the server is not valid: "
	}
	text := string(replaceAll([]byte(err.Error()), pairs))
	return &refusal{status: http.StatusBadGateway, failed: true, why: what + strings.ReplaceAll(text, "\n", "; ")}
}

// errServed is the error of [oneListener.Accept] after its one connection has ended. It makes http.Server
// return.
var errServed = errors.New("the connection has ended")

// A oneListener is a net.Listener that returns one existing connection of the sandbox, so that an http.Server
// reads the requests on it.
type oneListener struct {
	mu   sync.Mutex
	conn net.Conn
	done chan struct{}
}

// Accept returns the connection at the first call. Further calls wait until the connection is closed and
// return errServed.
func (l *oneListener) Accept() (net.Conn, error) {
	l.mu.Lock()
	conn := l.conn
	l.conn = nil
	l.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	<-l.done
	return nil, errServed
}

// Close does nothing: the http.Server closes the one connection of the listener.
func (l *oneListener) Close() error { return nil }

// Addr returns an empty address, which the interface needs and nobody reads.
func (l *oneListener) Addr() net.Addr { return &net.TCPAddr{} }

// A peeked is a connection from the sandbox of which the proxy has examined the first bytes, to recognise
// TLS; r reads these again. Close closes the channel done too, which ends the listener of the connection.
type peeked struct {
	net.Conn
	r    *bufio.Reader
	once sync.Once
	done chan struct{}
}

func (p *peeked) Read(b []byte) (int, error) { return p.r.Read(b) }

// Close closes the connection and the channel done. It may be called twice.
func (p *peeked) Close() error {
	err := p.Conn.Close()
	p.once.Do(func() { close(p.done) })
	return err
}
