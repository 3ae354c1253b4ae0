package e2b

import (
	"context"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/errs"
)

// trafficHeader is what a client shows to reach a port of a sandbox whose traffic is not public.
const trafficHeader = "E2b-Traffic-Access-Token"

// portHost returns the port and the ID in a host of the form PORT-ID.DOMAIN.
func portHost(host string) (port uint16, id string, ok bool) {
	label, _, dotted := strings.Cut(host, ".")
	text, id, dashed := strings.Cut(label, "-")
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), id, dotted && dashed && err == nil && n > 0 && id != ""
}

// proxy passes a request on to a port of a sandbox: also one that becomes a WebSocket.
func (s *Server) proxy(w http.ResponseWriter, r *http.Request, id string, port uint16) {
	b, err := s.sandbox(r.Context(), id)
	if err == nil {
		b, err = s.awake(r.Context(), b)
	}
	if err != nil {
		writeJSON(w, http.StatusBadGateway, map[string]any{"sandboxId": id, "message": "The sandbox was not found", "code": http.StatusBadGateway})
		return
	}
	if b.meta.Traffic != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get(trafficHeader)), []byte(b.meta.Traffic)) != 1 {
		writeError(w, http.StatusForbidden, "the sandbox's ports require the header "+trafficHeader)
		return
	}
	target, err := b.forward(r.Context(), port)
	if err != nil {
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
			q.Out.Header.Del("X-Access-Token")
			q.SetXForwarded()
		},
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { closed(w, id, port) },
	}
	p.ServeHTTP(w, r)
}

// closed says what E2B's proxy says of a port on which nothing listens.
func closed(w http.ResponseWriter, id string, port uint16) {
	writeJSON(w, http.StatusBadGateway, map[string]any{
		"sandboxId": id, "port": port, "message": "The sandbox is running but port is not open", "code": http.StatusBadGateway,
	})
}

// forward returns the address of this machine that leads to a port of the sandbox.
func (b *opened) forward(ctx context.Context, port uint16) (*url.URL, error) {
	to := &url.URL{Scheme: "http", Host: "127.0.0.1:" + strconv.Itoa(int(port))}
	p, err := b.e.Supervise.OpenPort(ctx, b.Name, port, 0)
	switch {
	case errors.Is(err, errs.ErrNotSupported):
		return to, nil // the sandbox uses the host's network
	case errors.Is(err, errs.ErrExists):
		list, err := b.e.Supervise.Ports(ctx, b.Name)
		for _, one := range list {
			if one.Port == port {
				to.Host = one.Addrs[0].String()
				return to, err
			}
		}
		return nil, err
	case err != nil:
		return nil, err
	}
	to.Host = p.Addrs[0].String()
	return to, nil
}
