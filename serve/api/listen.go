package api

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/listen"
	"github.com/snapfs/snapfs/serve/problem"
)

// A Where says on which unix socket or TCP address the server of the HTTP API listens.
type Where = listen.Where

// Bounds of a connection: the time to send the headers, the time between two requests, the size of the
// headers, and the time for requests to end when the server does. Whole requests and responses have no time
// limit, because streams last long; see upload and writer.
const (
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	maxHeader  = 64 << 10
	endTime    = 5 * time.Second
)

// Serve answers requests until ctx ends, and then waits up to five seconds for those that are still being
// served. It calls ready with the address once clients can connect. Errors: errs.ErrBusy (another server has
// the socket), errs.ErrInvalid (plain HTTP on an address that is not loopback, or a bad certificate),
// errs.ErrDenied.
func (a *API) Serve(ctx context.Context, w Where, ready func(address string)) error {
	l, err := w.Open(ctx)
	if err != nil {
		return err
	}
	secure, run := l.Secure, &serving{ending: ctx.Done()}
	defer run.terminals.Wait() // which end with ctx
	s := &http.Server{
		Handler: a.Handler(l.MayBe), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // broken handshakes of strangers
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, callerKey{}, caller{l.Local, run})
		},
	}
	ready(l.Name)
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
		if l.Once {
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
	return errs.With("listening", l.Name, err)
}

// unlessClosed returns err, the result of serving, or nil if err says that the HTTP server was closed on
// purpose.
func unlessClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Handler returns the handler of all routes of the HTTP API. mayBe reports whether a Host header may name
// this server, so that requests of other web pages are refused; nil accepts every one.
func (a *API) Handler(mayBe func(host string) bool) http.Handler {
	var routes http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mux.ServeHTTP(problem.Instead(w), r)
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
			problem.Refused(http.StatusMisdirectedRequest, errs.ErrDenied, "this server is not known by the name in the header Host; see --host").Answer(w)
			return
		}
		routes.ServeHTTP(w, r)
	})
}
