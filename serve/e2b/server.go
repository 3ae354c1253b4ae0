package e2b

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve"
	"github.com/snapfs/snapfs/serve/files"
)

// Options configure the [Server] that New returns: the rules that the operator, who starts the server, sets
// for sandboxes, the API keys, and the functions that open the engine.
type Options struct {
	// Rules are the limits of every sandbox. Its workspace is the home of the template base.
	Rules serve.Rules
	// Open opens the engine of the rules' state directory. Each request calls it once.
	Open func(ctx context.Context) (*engine.Engine, error)
	// Files is the snapfs program, which reads, changes and watches files in a sandbox.
	Files *files.Helper
	// Key reports whether an API key is valid. Nil accepts every key: for a server that only this machine reaches.
	Key func(key string) bool
	// Hosts are the names, without ports, by which clients may reach the server, besides localhost, its subdomains and
	// addresses of loopback. Subdomains of each are hosts of ports.
	Hosts []string
	// Templates are profiles by the name of their template: absolute paths.
	Templates map[string]string
	// MaxTimeout is the longest time-out that a client may set; 0 means 24 hours.
	MaxTimeout time.Duration
	// Notice is called with a sentence for the operator. It may be nil.
	Notice func(text string)

	// stall is how long the client of a download or an upload may stand still: slowClient, and less in a test.
	stall time.Duration
}

// The longest time-out of a sandbox if the operator sets no other, and for requests that make or control
// sandboxes the largest size of the body and the time to send it.
const (
	maxTimeout  = 24 * time.Hour
	maxBody     = 1 << 20
	bodyTimeout = 20 * time.Second
)

// A Server is an HTTP handler that serves the protocol of E2B, a hosted service of sandboxes, so that E2B's
// clients use sandboxes of snapfs. It is safe for concurrent use.
type Server struct {
	o       Options
	control http.Handler
	envd    http.Handler
	csrf    *http.CrossOriginProtection

	// ctx ends with Close.
	ctx context.Context
	end context.CancelFunc

	mu        sync.Mutex
	resources map[string]*resources // by the sandbox's record ID
	created   map[string]*creation  // by idempotency key
}

// New returns the handler that serves the protocol of E2B, a hosted service of sandboxes, for the root of an
// address. The caller closes it.
func New(o Options) *Server {
	if o.MaxTimeout == 0 {
		o.MaxTimeout = maxTimeout
	}
	if o.stall == 0 {
		o.stall = slowClient
	}
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	s := &Server{o: o, csrf: http.NewCrossOriginProtection(), resources: map[string]*resources{}, created: map[string]*creation{}}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.control = s.controlRoutes()
	s.envd = s.envdRoutes()
	go s.sweep()
	return s
}

// Close ends the commands that the server runs in sandboxes, and waits for them. The sandboxes stay.
func (s *Server) Close() error {
	s.end()
	s.mu.Lock()
	all := s.resources
	s.resources = map[string]*resources{}
	s.mu.Unlock()
	for _, r := range all {
		r.close()
	}
	return nil
}

// Claims reports whether a request is meant for this Server, if another handler serves the rest of the
// address. It decides by the request's host, headers and path.
func (s *Server) Claims(r *http.Request) bool {
	host := hostOf(r.Host)
	if _, _, ok := portHost(host); ok && s.knows(host) || r.Header.Get(idHeader) != "" || envdPath(r.URL.Path) {
		return true
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/"), "v2/"), "/")
	return first == "sandboxes" || first == "snapshots" || first == "templates"
}

// ServeHTTP serves a request for a control route, such as one that makes a sandbox, for E2B's program in a
// sandbox (envd), or for a port of a sandbox.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host := hostOf(r.Host)
	if port, id, ok := portHost(host); ok && s.knows(host[strings.IndexByte(host, '.')+1:]) {
		if port == envdPort {
			r.Header.Set(idHeader, id)
			s.serveEnvd(w, r)
			return
		}
		s.proxy(w, r, id, port)
		return
	}
	if !s.knows(host) {
		writeError(w, http.StatusMisdirectedRequest, "this server does not answer for the host "+host)
		return
	}
	if err := s.csrf.Check(r); err != nil {
		writeError(w, http.StatusForbidden, err.Error())
		return
	}
	if r.Header.Get(idHeader) != "" || envdPath(r.URL.Path) {
		s.serveEnvd(w, r)
		return
	}
	if !s.mayControl(r) {
		writeError(w, http.StatusUnauthorized, "the header X-API-Key has no valid key")
		return
	}
	body, err := bodyOf(w, r)
	if err != nil {
		fail(w, err)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.control.ServeHTTP(w, r)
}

// bodyOf reads the body of a client's request to make or control a sandbox, within bodyTimeout and maxBody.
func bodyOf(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(bodyTimeout)) // a test's recorder has no deadline
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	_ = connection.SetReadDeadline(time.Time{})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errs.With("reading the request", "", errors.Join(errs.ErrInvalid, err))
	}
	return data, err
}

// mayControl reports whether a request to make or control sandboxes has a valid API key. The header with the
// key must be there even if every key is valid, because a page in a browser cannot send it to another origin.
func (s *Server) mayControl(r *http.Request) bool {
	key := r.Header.Get("X-API-Key")
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && key == "" {
		key = bearer
	}
	return key != "" && (s.o.Key == nil || s.o.Key(key))
}

// knows reports whether host is one of the names of this server, so that a web page of another site cannot
// reach it under a name of its own.
func (s *Server) knows(host string) bool {
	if ip := net.ParseIP(strings.Trim(host, "[]")); ip != nil && ip.IsLoopback() || within(host, "localhost") {
		return true
	}
	for _, h := range s.o.Hosts {
		if within(host, strings.ToLower(h)) {
			return true
		}
	}
	return false
}

// within reports whether the name host is domain or one of its subdomains, so that it leads to this server.
func within(host, domain string) bool { return host == domain || strings.HasSuffix(host, "."+domain) }

// hostOf returns the host of a Host header in lower case, without its port.
func hostOf(header string) string {
	if host, _, err := net.SplitHostPort(header); err == nil {
		header = host
	}
	return strings.ToLower(strings.TrimSuffix(header, "."))
}

// SameKey returns a function for Options.Key, which checks the API key of a request: it accepts one key only.
func SameKey(key string) func(string) bool {
	return func(other string) bool { return subtle.ConstantTimeCompare([]byte(key), []byte(other)) == 1 }
}

// userOf returns the name of the user as whom a request asks to act, from its query or its Authorization
// header, or "". Only this server's own user is accepted later.
func userOf(r *http.Request) string {
	if name := r.URL.Query().Get("username"); name != "" {
		return name
	}
	return userOfHeader(r.Header)
}

func userOfHeader(h http.Header) string {
	encoded, ok := strings.CutPrefix(h.Get("Authorization"), "Basic ")
	if !ok {
		return ""
	}
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return ""
	}
	name, _, _ := strings.Cut(string(text), ":")
	return name
}
