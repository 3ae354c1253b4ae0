package page

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/token"
)

const (
	loginPath   = "/page/login"
	logoutPath  = "/page/logout"
	sessionPath = "/page/session"

	// keyHeader is the request header with the key that decrypts the cookie of a browser's session.
	keyHeader = "X-Snapfs-Key"
	// keyProtocol begins the WebSocket subprotocol with the key that decrypts the cookie of a browser's
	// session, in the request header protocolHeader. A page's script can set no other header there.
	keyProtocol    = "snapfs.key."
	protocolHeader = "Sec-Websocket-Protocol"
	// maxLogin is the largest size in bytes of the body of a browser's request to log in. A larger body is
	// refused.
	maxLogin = 4096
	// minted begins the names of API tokens that were made for a session by a login link, and that end with
	// it.
	minted = "page-"

	linkTime    = 10 * time.Minute
	sessionTime = 12 * time.Hour
	maxLinks    = 16
)

// A link is a login link that works once: the hash of its code, and what the session may do.
type link struct {
	hash   [sha256.Size]byte
	scopes []token.Scope
	until  time.Time
}

// Link returns a code with which a browser can log in once, within ten minutes, for a session of twelve
// hours. The page gets it as the fragment login=CODE of its URL, which browsers send to no server.
func (p *Page) Link(scopes []token.Scope) (code string) {
	code = rand.Text()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links = append(p.links, link{sha256.Sum256([]byte(code)), scopes, time.Now().Add(linkTime)})
	p.links = p.links[max(0, len(p.links)-maxLinks):]
	return code
}

// use returns the scopes (rights) for which a login code was made, and makes the code unusable. ok is false
// for an unknown or expired code.
func (p *Page) use(code string) (scopes []token.Scope, ok bool) {
	hash := sha256.Sum256([]byte(code))
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, l := range p.links {
		if subtle.ConstantTimeCompare(hash[:], l.hash[:]) == 1 {
			p.links = slices.Delete(p.links, i, i+1)
			return l.scopes, time.Now().Before(l.until)
		}
	}
	return nil, false
}

// session returns the handler for a URL path that logs in, logs out or describes the session, or nil for any
// other path.
func (p *Page) session(path string) http.HandlerFunc {
	method, do := http.MethodPost, http.HandlerFunc(nil)
	switch path {
	case loginPath:
		do = p.login
	case logoutPath:
		do = p.logout
	case sessionPath:
		method, do = http.MethodGet, p.describe
	default:
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		switch {
		case r.Method != method:
			w.Header().Set("Allow", method)
			refuse(w, http.StatusMethodNotAllowed, "use "+method)
		case !ofBrowser(r) || !sameOrigin(r):
			refuse(w, http.StatusForbidden, "only the page itself may send the request")
		default:
			do(w, r)
		}
	}
}

// A description is the response by which the web page learns the rights of the browser's session, such as to
// promote.
type description struct {
	Name    string        `json:"name"`
	Scopes  []token.Scope `json:"scopes"`
	Expires time.Time     `json:"expires,omitzero"`
	// Key is the key of the cookie, only after a login.
	Key string `json:"key,omitempty"`
}

// login starts a browser's session, with a token that the person pasted or with the code of a login link.
func (p *Page) login(w http.ResponseWriter, r *http.Request) {
	var q struct{ Token, Code string }
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") ||
		json.NewDecoder(http.MaxBytesReader(w, r.Body, maxLogin)).Decode(&q) != nil {
		refuse(w, http.StatusBadRequest, "a login is a JSON object with token or code")
		return
	}
	text := strings.TrimSpace(q.Token)
	if q.Code != "" {
		scopes, ok := p.use(q.Code)
		if !ok {
			refuse(w, http.StatusUnauthorized, "the link has been used or is too old; start snapfs serve --login again, or paste a token")
			return
		}
		var err error
		if text, err = p.mint(scopes); err != nil {
			refuse(w, http.StatusInternalServerError, err.Error())
			return
		}
	}
	t, err := p.tokens.Check(text)
	if err != nil {
		refuse(w, http.StatusUnauthorized, err.Error())
		return
	}
	key, sealed, err := seal(text)
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	c := cookie(r, sealed)
	if !t.Expires.IsZero() {
		c.Expires = t.Expires
	}
	http.SetCookie(w, c)
	w.Header().Set("Content-Type", "application/json")
	reply(w, description{t.Name, t.Scopes, t.Expires, key})
}

// mint makes an API token with these scopes (rights) for a session that a login link has started, and returns
// its text.
func (p *Page) mint(scopes []token.Scope) (text string, err error) {
	raw := make([]byte, 6)
	_, _ = rand.Read(raw) // never fails
	return p.tokens.New(token.Token{
		Name: minted + hex.EncodeToString(raw), Scopes: scopes, Created: time.Now().UTC().Truncate(time.Second),
		Expires: time.Now().Add(sessionTime).UTC().Truncate(time.Second),
	})
}

// logout ends the browser's session, and removes its token if a login link made it.
func (p *Page) logout(w http.ResponseWriter, r *http.Request) {
	if t, err := p.current(r); err == nil && strings.HasPrefix(t.Name, minted) {
		if err := p.tokens.Remove(t.Name); err != nil && !errors.Is(err, errs.ErrNotFound) {
			refuse(w, http.StatusInternalServerError, err.Error())
			return
		}
	}
	c := cookie(r, "")
	c.MaxAge = -1
	http.SetCookie(w, c)
	w.WriteHeader(http.StatusNoContent)
}

// describe answers the web page's request about what the browser's session may do. Without a session it
// answers with no content, which is no error: the page then shows its login.
func (p *Page) describe(w http.ResponseWriter, r *http.Request) {
	t, err := p.current(r)
	if err != nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	reply(w, description{t.Name, t.Scopes, t.Expires, ""})
}

func (p *Page) current(r *http.Request) (token.Token, error) {
	text, err := p.open(r)
	if err != nil {
		return token.Token{}, err
	}
	return p.tokens.Check(text)
}

// cookie returns the cookie of a browser's session with this value. The port is part of its name, because a
// browser sends one set of cookies to all ports of a host.
func cookie(r *http.Request, value string) *http.Cookie {
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		port = "0"
	}
	return &http.Cookie{Name: "snapfs_" + port, Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil}
}

// isSocket reports whether the request opens a WebSocket.
func isSocket(r *http.Request) bool { return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") }

// keyOf returns the encoded key of the cookie of a browser's session that came with the request, or "". A
// script of a page can send no header with a WebSocket, so there it comes as a subprotocol.
func keyOf(r *http.Request) string {
	if key := r.Header.Get(keyHeader); key != "" || !isSocket(r) {
		return key
	}
	for _, name := range subprotocols(r) {
		if key, ok := strings.CutPrefix(name, keyProtocol); ok {
			return key
		}
	}
	return ""
}

// withoutKey removes the key of the cookie of a browser's session from the request, which is passed to the API
// and perhaps to a server inside a sandbox.
func withoutKey(r *http.Request) {
	r.Header.Del(keyHeader)
	names := subprotocols(r)
	others := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return strings.HasPrefix(name, keyProtocol) })
	switch {
	case len(others) == len(names):
	case len(others) == 0:
		r.Header.Del(protocolHeader)
	default:
		r.Header.Set(protocolHeader, strings.Join(others, ", "))
	}
}

// subprotocols returns the names of the subprotocols that the request to open a WebSocket offers.
func subprotocols(r *http.Request) (names []string) {
	for _, line := range r.Header.Values(protocolHeader) {
		for name := range strings.SplitSeq(line, ",") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

// seal encrypts the API token text, for the cookie of a browser's session, with a new random key, and returns
// both encoded.
func seal(text string) (key, sealed string, err error) {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	aead, err := cipherOf(raw)
	if err != nil {
		return "", "", err
	}
	return base64.RawURLEncoding.EncodeToString(raw), base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, []byte(text), nil)), nil
}

// open decrypts the token in the cookie of a request. It returns an error if the request has no cookie, or
// not its key.
func (p *Page) open(r *http.Request) (text string, err error) {
	key, err := base64.RawURLEncoding.DecodeString(keyOf(r))
	if err != nil || len(key) != 32 {
		return "", http.ErrNoCookie
	}
	c, err := r.Cookie(cookie(r, "").Name)
	if err != nil {
		return "", err
	}
	sealed, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		return "", err
	}
	aead, err := cipherOf(key)
	if err != nil {
		return "", err
	}
	plain, err := aead.Open(nil, nil, sealed, nil)
	return string(plain), err
}

// cipherOf returns the cipher that encrypts the cookies of browsers' sessions, for a key of 32 bytes.
func cipherOf(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
