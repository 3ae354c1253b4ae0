package ports

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Bounds of a request that is passed on to a sandbox: how long a client may send or read nothing, how long
// connecting may take, and the size of the response's headers. Beyond one the request fails.
const (
	stallTime  = 30 * time.Second // for which a caller may send or read nothing
	dialTime   = 10 * time.Second
	maxHeaders = 64 << 10 // of a response
)

// A Proxy passes HTTP requests on to one server in a sandbox. It connects to no other address, whatever a
// request says.
type Proxy struct {
	// To is the address of the port forward that leads there, and Port the port inside.
	To   netip.AddrPort
	Port uint16
	// Prefix is the beginning of a request's path that the server inside does not see.
	Prefix string
	// Fail answers a request that the server inside does not.
	Fail func(w http.ResponseWriter, err error)
}

// ownHeaders returns the names of request headers that are meant for the server of snapfs. They are removed
// before a request goes to a server in a sandbox, which must not see the client's token, nor the key of its
// page.
func ownHeaders() []string {
	return []string{"Authorization", "Cookie", "Idempotency-Key", "Forwarded", "X-Snapfs-Key"}
}

// originHeaders returns the names of headers that are removed from the response of a server in a sandbox,
// because they would act on everything at the address of snapfs's server and not only on this port.
func originHeaders() []string {
	return []string{"Set-Cookie", "Alt-Svc", "Clear-Site-Data", "Strict-Transport-Security", "Service-Worker-Allowed", "Nel", "Report-To", "Reporting-Endpoints"}
}

// deleteOriginHeaders removes from h, the header or the trailer of a response, all originHeaders.
func deleteOriginHeaders(h http.Header) {
	for _, name := range originHeaders() {
		h.Del(name)
	}
}

// ServeHTTP passes a request on to the server in the sandbox, also one that becomes a WebSocket. It makes a
// browser treat the response as one of an origin of its own, so that a page from the sandbox cannot act as a
// page of the outer server.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = body{r.Body, control}
	}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			d := net.Dialer{Timeout: dialTime}
			return d.DialContext(ctx, "tcp", p.To.String())
		},
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeaders,
	}
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(q *httputil.ProxyRequest) {
			host := net.JoinHostPort("localhost", strconv.Itoa(int(p.Port)))
			q.Out.URL.Scheme, q.Out.URL.Host, q.Out.Host = "http", host, host
			q.Out.URL.Path = "/" + strings.TrimPrefix(q.In.URL.Path, p.Prefix)
			q.Out.URL.RawPath = ""
			if raw, ok := strings.CutPrefix(q.In.URL.EscapedPath(), p.Prefix); ok {
				q.Out.URL.RawPath = "/" + raw
			}
			for _, name := range ownHeaders() {
				q.Out.Header.Del(name)
			}
			q.SetXForwarded()
			q.Out.Header.Set("X-Forwarded-Prefix", strings.TrimSuffix(p.Prefix, "/"))
		},
		ModifyResponse: func(r *http.Response) error {
			deleteOriginHeaders(r.Header)
			if r.StatusCode != http.StatusSwitchingProtocols { // whose body is a connection
				r.Body = answer{r.Body, r}
			}
			r.Header.Add("Content-Security-Policy", "sandbox allow-scripts allow-forms")
			r.Header.Set("X-Content-Type-Options", "nosniff")
			return nil
		},
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, err error) { p.Fail(w, err) },
	}
	proxy.ServeHTTP(response{w, control}, r)
}

// A body reads the body of a request that a Proxy passes on. If the client sends nothing for stallTime, reads
// fail.
type body struct {
	io.ReadCloser
	control *http.ResponseController
}

func (b body) Read(p []byte) (int, error) {
	_ = b.control.SetReadDeadline(time.Now().Add(stallTime)) // a connection without deadlines is a test's
	return b.ReadCloser.Read(p)
}

// An answer is the body of a response from a server in a sandbox. When the body ends, the trailers (headers
// after the body) are there, and the answer removes from them the same headers as from the head of the
// response.
type answer struct {
	io.ReadCloser
	r *http.Response
}

func (a answer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil {
		deleteOriginHeaders(a.r.Trailer)
	}
	return n, err
}

// A response is a response writer for a request that a Proxy passes on. If the client reads nothing for
// stallTime, writes fail.
type response struct {
	http.ResponseWriter
	control *http.ResponseController
}

// WriteHeader sends the header of the response, or of one that comes before it, such as 103 (Early Hints).
func (r response) WriteHeader(status int) {
	deleteOriginHeaders(r.Header())
	r.ResponseWriter.WriteHeader(status)
}

func (r response) Write(p []byte) (int, error) {
	_ = r.control.SetWriteDeadline(time.Now().Add(stallTime)) // as above
	return r.ResponseWriter.Write(p)
}

// Unwrap returns the wrapped response writer, by which an http.ResponseController finds the connection.
func (r response) Unwrap() http.ResponseWriter { return r.ResponseWriter }
