package page_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/serve/page"
	"github.com/snapfs/snapfs/serve/token"
)

const host = "127.0.0.1:7070"

// A door is a Page before a handler that answers with the header Authorization that it gets.
type door struct {
	t      *testing.T
	page   *page.Page
	tokens *token.Store
	front  http.Handler
}

func newDoor(t *testing.T) *door {
	t.Helper()
	state := t.TempDir()
	d := &door{t: t, page: page.New(state), tokens: token.Open(state)}
	d.front = d.page.Front(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "passed %q %q", r.Header.Get("Authorization"), r.Header.Get("Cookie"))
	}))
	return d
}

func (d *door) token(scopes ...token.Scope) string {
	d.t.Helper()
	text, err := d.tokens.New(token.Token{Name: fmt.Sprintf("t%d", len(scopes)), Scopes: scopes})
	if err != nil {
		d.t.Fatal(err)
	}
	return text
}

// do sends a request with headers, as pairs of name and value.
func (d *door) do(method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = host
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		if headers[i] == "TLS" {
			r.TLS = &tls.ConnectionState{}
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	d.front.ServeHTTP(w, r)
	return w
}

// login logs in and returns the cookie with its key.
func (d *door) login(body string, headers ...string) (cookie *http.Cookie, key string) {
	d.t.Helper()
	w := d.do("POST", "/page/login", body, append([]string{"Content-Type", "application/json", "Sec-Fetch-Site", "same-origin"}, headers...)...)
	if w.Code != http.StatusOK || len(w.Result().Cookies()) != 1 {
		d.t.Fatalf("login: %d %s", w.Code, w.Body)
	}
	var got struct{ Key string }
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		d.t.Fatal(err)
	}
	return w.Result().Cookies()[0], got.Key
}

// TestThePageLoadsNothingFromElsewhereAndRunsNothingInline: by its policy, and by itself.
func TestThePageLoadsNothingFromElsewhereAndRunsNothingInline(t *testing.T) {
	d := newDoor(t)
	w := d.do("GET", "/", "")
	h := w.Header()
	for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(h.Get("Content-Security-Policy"), part) {
			t.Errorf("no %q in %q", part, h.Get("Content-Security-Policy"))
		}
	}
	if strings.Contains(h.Get("Content-Security-Policy"), "unsafe") || h.Get("X-Frame-Options") != "DENY" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("headers %v", h)
	}
	if inline := regexp.MustCompile(`<script[^>]*>[^<]|<style|\s(on\w+|style)=|https?:`).FindString(w.Body.String()); inline != "" {
		t.Errorf("the page has %q", inline)
	}
	for _, file := range []string{"main.js", "api.js", "dom.js", "sandboxes.js", "plan.js", "commands.js", "usage.js", "jobs.js", "terminal.js", "styles.js", "races.js", "page.css", "icon.svg"} {
		w := d.do("GET", "/page/"+file, "")
		text := strings.ReplaceAll(w.Body.String(), "http://www.w3.org/2000/svg", "")
		if w.Code != http.StatusOK || w.Header().Get("Content-Security-Policy") == "" || strings.Contains(w.Header().Get("Content-Type"), "html") {
			t.Errorf("%s: %d %v", file, w.Code, w.Header())
		}
		if bad := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|https?://`).FindString(text); bad != "" {
			t.Errorf("%s has %q", file, bad)
		}
	}
	for file, kind := range map[string]string{"xterm/xterm.mjs": "text/javascript", "xterm/addon-fit.mjs": "text/javascript", "xterm/xterm.css": "text/css", "xterm/LICENSE": "text/plain"} {
		w := d.do("GET", "/page/"+file, "")
		if got := w.Header().Get("Content-Type"); w.Code != http.StatusOK || !strings.HasPrefix(got, kind) {
			t.Errorf("%s: %d, a %s", file, w.Code, got)
		}
		if bad := regexp.MustCompile(`@import|url\(`).FindString(w.Body.String()); bad != "" && kind == "text/css" {
			t.Errorf("%s has %q", file, bad)
		}
	}
	if w := d.do("POST", "/", ""); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
	for _, path := range []string{"/page/", "/page/../page.go", "/page/static", "/page/none"} {
		if w := d.do("GET", path, ""); !strings.HasPrefix(w.Body.String(), "passed") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// TestACookieIsWorthNothingWithoutItsKey: and the token is in no place that another site, a script or another port of
// this host could use.
func TestACookieIsWorthNothingWithoutItsKey(t *testing.T) {
	d := newDoor(t)
	text := d.token(token.Read)
	c, key := d.login(`{"token": "` + text + `"}`)
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || strings.Contains(c.Value, text) || c.Secure {
		t.Errorf("cookie %v", c)
	}
	if s, _ := d.login(`{"token": "`+text+`"}`, "TLS", "1"); !s.Secure {
		t.Errorf("with TLS: %v", s)
	}
	_, other := d.login(`{"token": "` + text + `"}`)
	pair := c.Name + "=" + c.Value
	const none = `passed "none" ""`
	for _, test := range []struct {
		what, want string
		headers    []string
	}{
		{"both", `passed "Bearer ` + text + `" ""`, []string{"Cookie", pair, "X-Snapfs-Key", key}},
		{"no key", none, []string{"Cookie", pair}},
		{"no cookie", none, []string{"X-Snapfs-Key", key}},
		{"another key", none, []string{"Cookie", pair, "X-Snapfs-Key", other}},
		{"a short key", none, []string{"Cookie", pair, "X-Snapfs-Key", key[1:]}},
		{"a changed cookie", none, []string{"Cookie", pair + "A", "X-Snapfs-Key", key}},
		{"another port", none, []string{"Cookie", pair, "X-Snapfs-Key", key, "Host", "127.0.0.1:9999"}},
		{"the token as the cookie", none, []string{"Cookie", c.Name + "=" + text, "X-Snapfs-Key", key}},
	} {
		if got := d.do("GET", "/v1/sandboxes", "", append(test.headers, "Sec-Fetch-Site", "same-origin")...).Body.String(); got != test.want {
			t.Errorf("%s: %s", test.what, got)
		}
	}
	// Without the headers of a browser, a key is that of one.
	if got := d.do("GET", "/v1/sandboxes", "", "X-Snapfs-Key", key).Body.String(); got != none {
		t.Error(got)
	}
}

// TestAWebSocketBringsItsKeyAsASubprotocol: with the same checks as a request with a header, and nobody behind the page
// gets it.
func TestAWebSocketBringsItsKeyAsASubprotocol(t *testing.T) {
	d := newDoor(t)
	text := d.token(token.Run)
	c, key := d.login(`{"token": "` + text + `"}`)
	var offered string
	d.front = d.page.Front(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		offered = r.Header.Get("Sec-WebSocket-Protocol")
		fmt.Fprintf(w, "passed %q", r.Header.Get("Authorization"))
	}))
	const own = "http://" + host
	for _, test := range []struct{ what, origin, protocols, want, offers string }{
		{"the page", own, "snapfs.terminal.v1, snapfs.key." + key, `passed "Bearer ` + text + `"`, "snapfs.terminal.v1"},
		{"the key alone", own, "snapfs.key." + key, `passed "Bearer ` + text + `"`, ""},
		{"no key", own, "snapfs.terminal.v1", `passed "none"`, "snapfs.terminal.v1"},
		{"another key", own, "snapfs.terminal.v1,snapfs.key." + key[1:] + "A", `passed "none"`, "snapfs.terminal.v1"},
		{"no origin", "", "snapfs.terminal.v1, snapfs.key." + key, "", ""},
		{"another origin", "http://evil.example", "snapfs.terminal.v1, snapfs.key." + key, "", ""},
		{"another port", "http://127.0.0.1:9999", "snapfs.terminal.v1, snapfs.key." + key, "", ""},
		{"no site", "null", "snapfs.terminal.v1, snapfs.key." + key, "", ""},
	} {
		offered = ""
		headers := []string{"Cookie", c.Name + "=" + c.Value, "Connection", "Upgrade", "Upgrade", "WebSocket", "Sec-WebSocket-Protocol", test.protocols}
		if test.origin != "" {
			headers = append(headers, "Origin", test.origin)
		}
		w := d.do("GET", "/v1/sandboxes/t1/terminal", "", headers...)
		if test.want == "" && w.Code != http.StatusForbidden || test.want != "" && w.Body.String() != test.want || offered != test.offers {
			t.Errorf("%s: %d %s, offers %q", test.what, w.Code, w.Body, offered)
		}
	}
	// Only a WebSocket may bring it so.
	w := d.do("GET", "/v1/sandboxes", "", "Cookie", c.Name+"="+c.Value, "Origin", own, "Sec-WebSocket-Protocol", "snapfs.key."+key)
	if w.Body.String() != `passed "none"` {
		t.Errorf("no WebSocket: %s", w.Body)
	}
}

// TestAnotherSiteReachesNothing: by no request that a browser sends for it.
func TestAnotherSiteReachesNothing(t *testing.T) {
	d := newDoor(t)
	c, key := d.login(`{"token": "` + d.token(token.Read, token.Run, token.Promote) + `"}`)
	session := []string{"Cookie", c.Name + "=" + c.Value, "X-Snapfs-Key", key}
	for _, headers := range [][]string{
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"}, // another port
		{"Origin", "http://evil.example"},
		{"Origin", "null"},
		{"Origin", "http://127.0.0.1:9999"},
		{"Origin", "https://" + host},
		{"Sec-Fetch-Site", "cross-site", "Origin", "http://" + host},
	} {
		for _, target := range []string{"/v1/sandboxes", "/page/login", "/page/logout"} {
			w := d.do("POST", target, `{"token": ""}`, append(headers, session...)...)
			if w.Code != http.StatusForbidden || w.Header().Get("Content-Type") != "application/problem+json" || len(w.Result().Cookies()) != 0 {
				t.Errorf("%v %s: %d %s", headers, target, w.Code, w.Body)
			}
		}
	}
	// No browser sends these to the page's own requests.
	for _, headers := range [][]string{{}, {"Content-Type", "text/plain", "Sec-Fetch-Site", "same-origin"}} {
		if w := d.do("POST", "/page/login", `{"token": "x"}`, headers...); w.Code != http.StatusForbidden && w.Code != http.StatusBadRequest {
			t.Errorf("%v: %d", headers, w.Code)
		}
	}
	// A browser has no right by the socket alone, and a program has what it had.
	if got := d.do("GET", "/v1/sandboxes", "", "Sec-Fetch-Site", "none").Body.String(); got != `passed "none" ""` {
		t.Error(got)
	}
	if got := d.do("GET", "/v1/sandboxes", "").Body.String(); got != `passed "" ""` {
		t.Error(got)
	}
	if got := d.do("GET", "/mcp", "", "Origin", "http://inspector.example", "Authorization", "Bearer x").Body.String(); got != `passed "Bearer x" ""` {
		t.Error(got)
	}
}

// TestALinkLogsInOnce: with a token of its own, which a logout removes.
func TestALinkLogsInOnce(t *testing.T) {
	d := newDoor(t)
	code := d.page.Link([]token.Scope{token.Read})
	wrong := func(body string) {
		t.Helper()
		w := d.do("POST", "/page/login", body, "Content-Type", "application/json", "Sec-Fetch-Site", "same-origin")
		if w.Code != http.StatusUnauthorized || len(w.Result().Cookies()) != 0 {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	wrong(`{"code": "x"}`)
	wrong(`{"token": "snapfs_x"}`)
	c, key := d.login(`{"code": "` + code + `"}`)
	wrong(`{"code": "` + code + `"}`)
	list, err := d.tokens.List()
	if err != nil || len(list) != 1 || !strings.HasPrefix(list[0].Name, "page-") || len(list[0].Scopes) != 1 || list[0].Expires.IsZero() {
		t.Errorf("tokens %v %v", list, err)
	}
	headers := []string{"Cookie", c.Name + "=" + c.Value, "X-Snapfs-Key", key, "Sec-Fetch-Site", "same-origin"}
	if w := d.do("GET", "/page/session", "", headers...); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"scopes":["read"]`) || strings.Contains(w.Body.String(), "key") {
		t.Errorf("session: %d %s", w.Code, w.Body)
	}
	if w := d.do("POST", "/page/logout", "", headers...); w.Code != http.StatusNoContent || w.Result().Cookies()[0].MaxAge >= 0 {
		t.Errorf("logout: %d", w.Code)
	}
	if list, _ := d.tokens.List(); len(list) != 0 {
		t.Errorf("left: %v", list)
	}
	if w := d.do("GET", "/page/session", "", headers...); w.Code != http.StatusNoContent {
		t.Errorf("after it: %d %s", w.Code, w.Body)
	}
}
