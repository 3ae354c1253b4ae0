package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/errs"
)

// Where says where a server listens. Without Listen and Stdio it is the socket, or what systemd passed.
type Where struct {
	// Socket is the path of the unix socket.
	Socket string `json:"socket,omitempty"`
	// Listen is a TCP address with a port; "" for none.
	Listen string `json:"listen,omitempty"`
	// Cert and Key are the files of a TLS certificate and its key, for Listen.
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
	// Hosts are more names under which callers may reach Listen.
	Hosts []string `json:"hosts,omitempty"`
	// Stdio serves one connection on standard input and output.
	Stdio bool `json:"stdio,omitempty"`
}

// Bounds of a connection. Whole requests and responses have none, as streams last for long: see upload and writer.
const (
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	maxHeader  = 64 << 10
	endTime    = 5 * time.Second
)

const listening = "listening"

// Serve answers requests until ctx ends, then waits a little for those that are going on. ready is called with the
// address once callers can connect. Errors: errs.ErrBusy (another server has the socket), errs.ErrInvalid (plain HTTP on
// an address that is not loopback, a certificate), errs.ErrDenied.
func (a *API) Serve(ctx context.Context, w Where, ready func(address string)) error {
	l, local, err := w.listen(ctx)
	if err != nil {
		return err
	}
	secure := l.secure
	s := &http.Server{
		Handler: a.Handler(l.mayBe), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // broken handshakes of strangers
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, callerKey{}, caller{local})
		},
	}
	ready(l.name)
	done := make(chan error, 1)
	go func() {
		if secure != nil {
			s.TLSConfig = secure
			done <- s.ServeTLS(l, "", "")
		} else {
			done <- s.Serve(l)
		}
	}()
	select {
	case err = <-done:
		if l.once {
			err = nil // its connection has ended
		}
	case <-ctx.Done():
		ending, stop := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		defer stop()
		if s.Shutdown(ending) != nil {
			err = s.Close() // ends the streams, and with them their commands
		}
		err = errors.Join(err, unlessClosed(<-done))
	}
	return errs.With(listening, l.name, err)
}

// unlessClosed returns err, or nil for the end of a server that was closed.
func unlessClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Handler returns the handler of all routes. mayBe reports whether a caller may have addressed the server by this Host
// header; nil permits every one.
func (a *API) Handler(mayBe func(host string) bool) http.Handler {
	var routes http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mux.ServeHTTP(&problems{ResponseWriter: w}, r)
	})
	if a.o.Front != nil {
		routes = a.o.Front(routes)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, other := range a.o.Others {
			if !other.Claims(r) {
				continue
			}
			if !a.others.take() {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			defer a.others.release()
			other.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		if mayBe != nil && !mayBe(r.Host) { // a page of another name whose address was rebound to this one
			p := refused(http.StatusMisdirectedRequest, errs.ErrDenied, "this server is not known by the name in the header Host; see --host")
			h.Set("Content-Type", p.ContentType(""))
			w.WriteHeader(p.Status)
			writeJSON(w, p)
			return
		}
		routes.ServeHTTP(w, r)
	})
}

// A problems writes the mux's own errors, which are text, as problem documents.
type problems struct {
	http.ResponseWriter
	instead bool
}

// WriteHeader replaces a text by a problem document.
func (p *problems) WriteHeader(status int) {
	h := p.Header()
	if (status == http.StatusNotFound || status == http.StatusMethodNotAllowed) && strings.HasPrefix(h.Get("Content-Type"), "text/plain") {
		kind := errs.ErrInvalid
		if status == http.StatusNotFound {
			kind = errs.ErrNotFound
		}
		doc := refused(status, kind, "no route has this path and method; see /v1/openapi.json")
		h.Set("Content-Type", doc.ContentType(""))
		h.Del("Content-Length")
		p.ResponseWriter.WriteHeader(status)
		writeJSON(p.ResponseWriter, doc)
		p.instead = true
		return
	}
	p.ResponseWriter.WriteHeader(status)
}

// Write drops the text that was replaced.
func (p *problems) Write(data []byte) (int, error) {
	if p.instead {
		return len(data), nil
	}
	return p.ResponseWriter.Write(data)
}

// Unwrap lets an http.ResponseController find the connection.
func (p *problems) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// A listener is where a server accepts connections.
type listener struct {
	net.Listener
	name   string
	secure *tls.Config
	mayBe  func(host string) bool
	once   bool
}

// listen starts to listen. local is set if every caller is this user or root.
func (w Where) listen(ctx context.Context) (l *listener, local bool, err error) {
	switch {
	case w.Stdio:
		return &listener{Listener: newOnce(&stdio{}), name: "standard input and output", once: true}, true, nil
	case w.Listen != "":
		l, err = w.listenTCP(ctx)
		return l, false, err
	}
	passed, err := passedSocket()
	if err != nil {
		return nil, false, err
	}
	if passed != nil {
		if _, ok := passed.(*net.UnixListener); !ok {
			passed.Close() //nolint:errcheck // it is refused
			return nil, false, errs.New(listening, "", errs.ErrNotSupported, "systemd passed a socket that is no unix socket; name an address with --listen")
		}
		return &listener{Listener: peers{passed}, name: passed.Addr().String()}, true, nil
	}
	u, err := listenUnix(ctx, w.Socket)
	if err != nil {
		return nil, false, err
	}
	return &listener{Listener: peers{u}, name: w.Socket}, true, nil
}

func (w Where) listenTCP(ctx context.Context) (*listener, error) {
	host, _, err := net.SplitHostPort(w.Listen)
	if err != nil {
		return nil, errs.New(listening, w.Listen, errs.ErrInvalid, "the address needs the form HOST:PORT")
	}
	l := &listener{name: w.Listen}
	if w.Cert != "" {
		cert, err := tls.LoadX509KeyPair(w.Cert, w.Key)
		if err != nil {
			return nil, errs.New(listening, w.Cert, errs.ErrInvalid, err.Error())
		}
		l.secure = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	} else if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, errs.New(listening, w.Listen, errs.ErrInvalid, "without TLS a token could be read on the way: only an address of loopback is possible",
			"snapfs serve --listen 127.0.0.1:PORT", "snapfs serve --listen ADDRESS:PORT --tls-cert FILE --tls-key FILE")
	}
	l.mayBe = hostCheck(host, w.Hosts, l.secure)
	var config net.ListenConfig
	if l.Listener, err = config.Listen(ctx, "tcp", w.Listen); err != nil {
		return nil, errs.With(listening, w.Listen, err)
	}
	l.name = l.Addr().String()
	return l, nil
}

// hostCheck returns a function that reports whether a Host header names this server: by the address, by localhost where
// that is loopback, by a name of the certificate, or by one of more.
func hostCheck(address string, more []string, secure *tls.Config) func(string) bool {
	names := append([]string{address}, more...)
	if ip := net.ParseIP(address); address == "localhost" || ip != nil && ip.IsLoopback() {
		names = append(names, "localhost", "127.0.0.1", "::1")
	}
	return func(header string) bool {
		host, _, err := net.SplitHostPort(header)
		if err != nil {
			host = header
		}
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		if slices.ContainsFunc(names, func(n string) bool { return n != "" && strings.EqualFold(n, host) }) {
			return true
		}
		return secure != nil && secure.Certificates[0].Leaf.VerifyHostname(host) == nil
	}
}

// listenUnix listens on a socket that only this user may open. It replaces a socket that no server listens on.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	const longest = 107 // of a path in sockaddr_un
	if len(path) > longest {
		return nil, errs.New(listening, path, errs.ErrInvalid, "the path of a socket has at most 107 bytes", "snapfs serve --socket PATH")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, errs.With(listening, path, err)
	}
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Type() != os.ModeSocket {
		return nil, errs.New(listening, path, errs.ErrExists, "it is no socket")
	}
	if err == nil {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", path)
		if err == nil {
			c.Close() //nolint:errcheck // nothing was sent
			return nil, errs.New(listening, path, errs.ErrBusy, "another server listens there")
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, errs.With(listening, path, err)
		}
		if err := os.Remove(path); err != nil {
			return nil, errs.With(listening, path, err)
		}
	}
	// Under another name until only this user may open it.
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	if len(fresh) > longest {
		fresh = filepath.Join(filepath.Dir(path), "s")
	}
	_ = os.Remove(fresh) // of a killed server with this pid
	var config net.ListenConfig
	l, err := config.Listen(ctx, "unix", fresh)
	if err != nil {
		return nil, errs.With(listening, path, err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	if err = os.Chmod(fresh, 0o600); err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return nil, errs.With(listening, path, errors.Join(err, l.Close(), os.Remove(fresh)))
	}
	return unlinking{l, path}, nil
}

// An unlinking removes its socket when it is closed.
type unlinking struct {
	net.Listener
	path string
}

func (u unlinking) Close() error {
	_ = os.Remove(u.path) // one that is gone is gone
	return u.Listener.Close()
}

// A peers accepts connections of this user and of root only.
type peers struct{ net.Listener }

func (p peers) Accept() (net.Conn, error) {
	for {
		c, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if uid, err := peerUID(c); err == nil && (uid == 0 || int(uid) == os.Geteuid()) {
			return c, nil
		}
		c.Close() //nolint:errcheck // a stranger's
	}
}

// A once is a listener of one connection. Its second Accept waits for the end of that.
type once struct {
	conn  net.Conn
	first chan net.Conn
	ended chan struct{}
}

func newOnce(s *stdio) *once {
	s.ended = make(chan struct{})
	o := &once{conn: s, first: make(chan net.Conn, 1), ended: s.ended}
	o.first <- s
	return o
}

func (o *once) Accept() (net.Conn, error) {
	select {
	case c := <-o.first:
		return c, nil
	case <-o.ended:
		return nil, io.EOF
	}
}

func (o *once) Close() error   { return o.conn.Close() }
func (o *once) Addr() net.Addr { return o.conn.LocalAddr() }
