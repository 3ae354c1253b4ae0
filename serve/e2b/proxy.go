package e2b

import (
	"context"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate"
)

// trafficHeader is the header with the token that a client needs to reach a port of a sandbox whose ports are
// not public.
const trafficHeader = "E2b-Traffic-Access-Token"

// portHost parses a Host header of the form PORT-ID.DOMAIN, which leads to a port of the sandbox ID. ok is
// false for any other form.
func portHost(host string) (port uint16, id string, ok bool) {
	label, _, dotted := strings.Cut(host, ".")
	text, id, dashed := strings.Cut(label, "-")
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), id, dotted && dashed && err == nil && n > 0 && id != ""
}

// proxy passes an HTTP request on to a port of a sandbox, also one that becomes a WebSocket. It requires no
// API key: anyone who knows the sandbox's ID reaches the ports, unless mayReach refuses. A request that it
// refuses does not resume a paused sandbox.
func (s *Server) proxy(w http.ResponseWriter, r *http.Request, id string, port uint16) {
	b, err := s.sandbox(r.Context(), id)
	if err == nil {
		if status, why := b.mayReach(r, port); status != http.StatusOK {
			writeError(w, status, why)
			return
		}
		b, err = s.awake(r.Context(), b)
	}
	if err != nil {
		writeJSON(w, http.StatusBadGateway, map[string]any{"sandboxId": id, "message": "The sandbox was not found", "code": http.StatusBadGateway})
		return
	}
	target, err := b.forward(r.Context(), port)
	switch {
	case errors.Is(err, errs.ErrNoSpace):
		fail(w, err)
		return
	case err != nil:
		closed(w, id, port)
		return
	}
	p := &httputil.ReverseProxy{
		Rewrite: func(q *httputil.ProxyRequest) {
			q.Out.URL.Scheme, q.Out.URL.Host = target.Scheme, target.Host
			q.Out.Host = q.In.Host
			if n := b.meta.Network; n != nil && n.MaskRequestHost != "" {
				q.Out.Host = strings.ReplaceAll(n.MaskRequestHost, "${PORT}", strconv.Itoa(int(port)))
			}
			q.Out.Header.Del(trafficHeader)
			q.Out.Header.Del("X-API-Key")
			q.Out.Header.Del(tokenHeader)
			q.SetXForwarded()
		},
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { closed(w, id, port) },
	}
	p.ServeHTTP(w, r)
}

// hasHostNetwork reports whether the sandbox uses the network of this machine, so that its ports are those of
// all programs here.
func (b *opened) hasHostNetwork() bool { return b.Policy.Network == string(isolate.NetworkHost) }

// mayReach returns StatusOK if a request may reach this port of the sandbox, or the HTTP status and the
// reason of the refusal.
func (b *opened) mayReach(r *http.Request, port uint16) (status int, why string) {
	switch {
	case b.meta.Traffic != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get(trafficHeader)), []byte(b.meta.Traffic)) != 1:
		return http.StatusForbidden, "the sandbox's ports require the header " + trafficHeader
	case b.hasHostNetwork() && !hasToken(r, b):
		return http.StatusForbidden, "the sandbox uses the host's network: its ports require the header " + tokenHeader
	case b.hasHostNetwork() && ownPort(r) == port:
		return http.StatusLoopDetected, "this server has the port, and does not pass requests on to itself"
	}
	return http.StatusOK, ""
}

// ownPort returns the port at which this server received the request, or 0 if it came over a unix socket.
func ownPort(r *http.Request) uint16 {
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		return at.AddrPort().Port()
	}
	return 0
}

// closed answers a request for a port of a sandbox on which nothing listens, with the error of E2B's own
// proxy.
func closed(w http.ResponseWriter, id string, port uint16) {
	writeJSON(w, http.StatusBadGateway, map[string]any{
		"sandboxId": id, "port": port, "message": "The sandbox is running but port is not open", "code": http.StatusBadGateway,
	})
}

// forward returns an address of this machine from which connections lead to a port of the sandbox. The caller
// has checked mayReach. Errors: those of [supervise.Manager.OpenProxyPort].
func (b *opened) forward(ctx context.Context, port uint16) (*url.URL, error) {
	to := &url.URL{Scheme: "http", Host: "127.0.0.1:" + strconv.Itoa(int(port))}
	p, err := b.e.Supervise.OpenProxyPort(ctx, b.Name, port)
	switch {
	case b.hasHostNetwork() && errors.Is(err, errs.ErrNotSupported):
		return to, nil
	case err != nil:
		return nil, err
	}
	to.Host = p.Addrs[0].String()
	return to, nil
}
