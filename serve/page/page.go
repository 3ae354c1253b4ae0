// Package page serves the page of `snapfs serve` for a person with a browser. All requests of browsers to the
// API pass through it.
//
// Read [Page.Front] first. The page is some static files that call /v1, so the API decides, by a token, what
// a caller may do. A browser has no right without a token, also not on the unix socket, which may be
// forwarded to it.
//
// The token is in a cookie that scripts cannot read and other sites cannot send. A browser sends a cookie to
// all ports of a host, so every server of the host gets it. Therefore the cookie is encrypted. Its key, which
// the browser stores for this origin alone, comes in a header. A request from another site could send
// neither.
package page

import (
	"cmp"
	"embed"
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"

	"github.com/snapfs/snapfs/serve/token"
)

//go:embed static
var static embed.FS

// policy is the Content-Security-Policy of the web page of `snapfs serve`. It forbids everything that the
// page does not need, so that a file's name that got into the markup could do nothing.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'none'; frame-ancestors 'none'; " +
	"base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// A Page serves the web page of `snapfs serve` and the sessions of browsers. Its only state is in memory: the
// login links that nobody has used yet.
type Page struct {
	tokens *token.Store

	mu    sync.Mutex
	links []link
}

// New returns the Page, the web page of `snapfs serve`, for the API tokens of the state directory state.
func New(state string) *Page { return &Page{tokens: token.Open(state)} }

// file returns the content of the static file of the web page that the path at of a URL names; false if there
// is none.
func file(at string) (data []byte, ok bool) {
	name, ok := strings.CutPrefix(at, "/page/")
	if at == "/" {
		name, ok = "index.html", true
	}
	if !ok {
		return nil, false
	}
	data, err := static.ReadFile("static/" + name)
	return data, err == nil
}

// Front returns a handler that serves the web page, and passes each other request to next. It adds the token
// of the browser's session to a request of a browser, or removes any right if there is none. The caller must
// have checked the header Host.
func (p *Page) Front(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if data, ok := file(r.URL.Path); ok {
			serveFile(w, r, data)
			return
		}
		if do := p.session(r.URL.Path); do != nil {
			do(w, r)
			return
		}
		if r.Header.Get("Authorization") != "" || !ofBrowser(r) {
			next.ServeHTTP(w, r)
			return
		}
		if !sameOrigin(r) {
			refuse(w, http.StatusForbidden, "a page of another site sent the request")
			return
		}
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "none")
		if text, err := p.open(r); err == nil {
			r.Header.Set("Authorization", "Bearer "+text)
		}
		r.Header.Del("Cookie")
		withoutKey(r)
		next.ServeHTTP(w, r)
	})
}

// serveFile answers a request with a static file of the web page of `snapfs serve`.
func serveFile(w http.ResponseWriter, r *http.Request, data []byte) {
	h := w.Header()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "the page can only be read")
		return
	}
	kind := "text/html; charset=utf-8"
	if r.URL.Path != "/" {
		kind = cmp.Or(mime.TypeByExtension(path.Ext(r.URL.Path)), "text/plain; charset=utf-8")
	}
	for name, value := range map[string]string{
		"Content-Type": kind, "Content-Security-Policy": policy, "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache",
	} {
		h.Set(name, value)
	}
	if r.Method == http.MethodGet {
		_, _ = w.Write(data) // an error means that the caller has gone
	}
}

// ofBrowser reports whether a browser sent the request. Every browser of the last years sends Sec-Fetch-Site,
// and no script can remove it. Older ones send Origin with a request that changes something and could come
// from another site.
func ofBrowser(r *http.Request) bool {
	return r.Header.Get("Sec-Fetch-Site") != "" || r.Header.Get("Origin") != "" || keyOf(r) != ""
}

// sameOrigin reports whether a browser's request comes from the web page of this server, or from the person
// at the browser, and not from another site.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return !isSocket(r) // a browser always sends it with these
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	u, err := url.Parse(origin)
	return err == nil && u.Scheme == scheme && strings.EqualFold(u.Host, r.Host)
}

// refuse answers a request with an error status and a problem document (RFC 9457) with the message text, as
// the API does.
func refuse(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	problem := map[string]any{"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": text}
	switch status {
	case http.StatusBadRequest, http.StatusMethodNotAllowed:
		problem["kind"] = "invalid"
	case http.StatusUnauthorized, http.StatusForbidden:
		problem["kind"] = "denied"
	}
	reply(w, problem)
}

// reply writes the value v as JSON to the browser, as the response to a request about its session.
func reply(w http.ResponseWriter, v any) {
	_ = json.NewEncoder(w).Encode(v) // an error means that the caller has gone
}
