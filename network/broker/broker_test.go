package broker

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/network"
)

const (
	anyRule = "GET,POST,PUT " + serverName
	origin  = "https://" + serverName
)

// echo answers with everything that the server knows of the request, in many encodings.
func echo(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if _, password, ok := r.BasicAuth(); ok {
		key = password
	}
	w.Header().Set("X-Echo", r.Header.Get("Authorization"))
	w.Header().Set("Set-Cookie", "k="+key)
	w.Header().Set("Trailer", "X-Trailer")
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s %v\n%s\n", r.Method, r.URL, r.Host, r.Header, body)
	for _, text := range []string{
		key, base64.StdEncoding.EncodeToString([]byte(key)), base64.URLEncoding.EncodeToString([]byte("x" + key)), base64.StdEncoding.EncodeToString([]byte("xy" + key + "z")),
		hex.EncodeToString([]byte(key)), url.QueryEscape(key), url.PathEscape(key),
	} {
		fmt.Fprintln(w, text)
	}
	w.Header().Set("X-Trailer", key)
}

// leaks returns the first form of the real key that a text contains, or "".
func leaks(text string) string {
	for skip := range 3 {
		coded := base64.RawStdEncoding.EncodeToString(append(make([]byte, skip), realKey...))
		if part := coded[4 : len(coded)-2]; strings.Contains(strings.NewReplacer("-", "+", "_", "/").Replace(text), part) {
			return part
		}
	}
	for _, form := range []string{realKey, hex.EncodeToString([]byte(realKey)), url.QueryEscape(realKey), url.PathEscape(realKey)} {
		if strings.Contains(text, form) {
			return form
		}
	}
	return ""
}

func TestSecretsReachTheServerAndNeverComeBack(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			w := newWorld(t, anyRule, echo, nil)
			c := w.client(http2)
			basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+w.key))
			for name, r := range map[string][]string{
				"bearer": {"/v1/x", "Authorization", "Bearer " + w.key}, "api key": {"/v1/x", "X-Api-Key", w.key}, "basic": {"/v1/x", "Authorization", basic},
				"query": {"/v1/x?a=1&key=" + w.key, "Accept", "*/*"}, "cookie": {"/", "Cookie", "session=" + w.key + "; b=1"},
			} {
				response, body := w.do(c, "GET", origin+r[0], "", r[1:]...)
				if response.StatusCode != http.StatusOK || http2 != (response.ProtoMajor == 2) {
					t.Fatalf("%s: %s %s", name, response.Proto, response.Status)
				}
				seen, _ := w.requests()
				last := seen[len(seen)-1]
				_, password, _ := last.BasicAuth()
				if got := fmt.Sprint(last.Header, last.URL.Query()["key"], password); !strings.Contains(got, realKey) || strings.Contains(got, w.key) {
					t.Errorf("%s: the server got %s", name, got)
				}
				if form := leaks(fmt.Sprint(body, response.Header, response.Trailer)); form != "" {
					t.Errorf("%s: the client got %s: %s %v", name, form, body, response.Header)
				}
				if ev := w.last(); !ev.Allowed || len(ev.Secrets) != 1 || ev.Secrets[0] != "KEY" || ev.Kind != network.HTTP || ev.Rule != anyRule {
					t.Errorf("%s: event %+v", name, ev)
				}
			}
		})
	}
}

func TestBodiesAreLeftAloneUnlessTheSecretSaysSo(t *testing.T) {
	for _, inBody := range []bool{false, true} {
		w := newWorld(t, anyRule, echo, func(o *Options) { o.Config.Secrets[0].Body = inBody })
		_, answer := w.do(w.client(true), "POST", origin+"/token", "client_secret="+w.key+"&x=1")
		_, bodies := w.requests()
		if want := map[bool]string{false: "client_secret=" + w.key + "&x=1", true: "client_secret=" + realKey + "&x=1"}[inBody]; bodies[0] != want {
			t.Errorf("the server got %s", bodies[0])
		}
		if leaks(answer) != "" {
			t.Errorf("the client got %s", answer)
		}
	}
}

func TestRefusalsSayWhy(t *testing.T) {
	other := newWorld(t, anyRule, echo, nil).key
	for name, c := range map[string]struct {
		rules   string
		change  func(*Options)
		method  string
		url     string
		headers []string
		status  int
		why     string
	}{
		"rule: method":             {"GET " + serverName, nil, "POST", origin + "/", nil, 403, "no rule allows POST /"},
		"rule: path":               {"GET " + serverName + "/v1/*", nil, "GET", origin + "/admin", nil, 403, "no rule allows GET /admin"},
		"rule: dots":               {"GET " + serverName + "/v1/*", nil, "GET", origin + "/v1/%2e%2e/admin", nil, 403, "no rule allows GET /admin"},
		"path: encoded slash":      {anyRule, nil, "GET", origin + "/v1%2fx", nil, 400, "encoded slash"},
		"path: twice encoded":      {anyRule, nil, "GET", origin + "/v1/%252e%252e/x", nil, 400, "an escape within an escape"},
		"secret: another start":    {anyRule, nil, "GET", origin + "/", []string{"X-Api-Key", other}, 403, "placeholder of another sandbox"},
		"secret: another in basic": {anyRule, nil, "GET", origin + "/", []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("u:"+other))}, 403, "placeholder of another sandbox"},
		"secret: other host": {
			anyRule, func(o *Options) { o.Config.Secrets[0].Hosts = []string{"api.example.org:443"} }, "GET", origin + "/",
			[]string{"X-Api-Key", "KEY"},
			403,
			"the secret KEY is not for example.com:443, only for api.example.org:443",
		},
		"secret: other port":  {anyRule, func(o *Options) { o.Config.Secrets[0].Hosts = []string{serverName + ":8443"} }, "GET", origin + "/", []string{"X-Api-Key", "KEY"}, 403, "is not for example.com:443"},
		"secret: method":      {anyRule, func(o *Options) { o.Config.Secrets[0].Methods = []string{"GET"} }, "PUT", origin + "/", []string{"X-Api-Key", "KEY"}, 403, "is not for the method PUT, only for GET"},
		"secret: path":        {anyRule, func(o *Options) { o.Config.Secrets[0].Paths = []string{"/v1/*"} }, "GET", origin + "/v1/../v2", []string{"X-Api-Key", "KEY"}, 403, "is not for the path /v2, only for /v1/*"},
		"secret: plain HTTP":  {anyRule, func(o *Options) { o.Config.Secrets[0].Hosts = []string{serverName} }, "GET", "http://" + serverName + "/", []string{"X-Api-Key", "KEY"}, 403, "over TLS only"},
		"secret: in the path": {anyRule, nil, "GET", origin + "/botKEY/x", nil, 403, "a placeholder in the path"},
		"secret: escaped":     {anyRule, nil, "GET", origin + "/?k=%53KEYREST", nil, 403, "escaped in the query"},
		"host":                {anyRule, nil, "GET", origin + "/", []string{"Host", "other.example"}, 421, "the connection for example.com"},
		"websocket":           {anyRule, nil, "GET", origin + "/", []string{"Connection", "Upgrade", "Upgrade", "websocket"}, 403, `upgrade to "websocket"`},
		"method: override":    {anyRule, nil, "GET", origin + "/", []string{"X-HTTP-Method-Override", "DELETE"}, 403, "the header X-Http-Method-Override, which names another method"},
		"method: short":       {anyRule, nil, "GET", origin + "/", []string{"X-HTTP-Method", "PUT"}, 403, "the header X-Http-Method, which"},
		"method: other name":  {anyRule, nil, "POST", origin + "/", []string{"X-Method-Override", "DELETE"}, 403, "the header X-Method-Override, which"},
		"method: underscores": {anyRule, nil, "POST", origin + "/", []string{"X_HTTP_Method_Override", "DELETE"}, 403, "which names another method"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.rules, echo, c.change)
			put := strings.NewReplacer("KEYREST", strings.TrimPrefix(w.key[strings.Index(w.key, "Snapfs"):], "S"), "KEY", w.key)
			r, err := http.NewRequestWithContext(t.Context(), c.method, put.Replace(c.url), nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(c.headers); i += 2 {
				if c.headers[i] == "Host" {
					r.Host = c.headers[i+1]
				}
				r.Header.Set(c.headers[i], put.Replace(c.headers[i+1]))
			}
			response, err := w.client(false).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			response.Body.Close() //nolint:errcheck // a test
			if err != nil || response.StatusCode != c.status || !strings.Contains(strings.ReplaceAll(string(body), `\"`, `"`), c.why) {
				t.Errorf("%s %s, %v; want %d with %q", response.Status, body, err, c.status, c.why)
			}
			if seen, _ := w.requests(); len(seen) > 0 {
				t.Errorf("the server got %v", seen[0].Header)
			}
			if ev := w.last(); ev.Allowed || !strings.Contains(ev.Why, c.why) || ev.Name != serverName {
				t.Errorf("event %+v", ev)
			}
		})
	}
}

func TestHeadersMayRepeatTheMethod(t *testing.T) {
	w := newWorld(t, anyRule, echo, nil)
	if response, body := w.do(w.client(true), "POST", origin+"/", "", "X-HTTP-Method-Override", "post"); response.StatusCode != http.StatusOK {
		t.Errorf("%s %s", response.Status, body)
	}
}

// A request with two lengths must be one request for the server, and what follows it one that the rules know.
func TestSmuggledRequestsAreReadLikeOthers(t *testing.T) {
	for name, text := range map[string]string{
		"CL and TE":      "POST /v1/a HTTP/1.1\r\nHost: example.com\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: example.com\r\nX-Api-Key: KEY\r\n\r\n",
		"two CL":         "POST /v1/a HTTP/1.1\r\nHost: example.com\r\nContent-Length: 0\r\nContent-Length: 60\r\n\r\nGET /admin HTTP/1.1\r\nHost: example.com\r\nX-Api-Key: KEY\r\n\r\n",
		"TE twice":       "POST /v1/a HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"obsolete fold":  "GET /v1/a HTTP/1.1\r\nHost: example.com\r\nX: y\r\n : GET /admin\r\n\r\nGET /admin HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"two hosts":      "GET /v1/a HTTP/1.1\r\nHost: example.com\r\nHost: other.example\r\n\r\n",
		"absolute":       "GET http://other.example/v1/a HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"space in name":  "POST /v1/a HTTP/1.1\r\nHost: example.com\r\nContent-Length : 60\r\n\r\nGET /admin HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"line feed only": "GET /v1/a HTTP/1.1\nHost: example.com\n\nGET /admin HTTP/1.1\nHost: example.com\n\n",
		"connect":        "CONNECT other.example:443 HTTP/1.1\r\nHost: other.example:443\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "GET,POST "+serverName+"/v1/*", echo, nil)
			w.raw(strings.ReplaceAll(text, "KEY", w.key), 2)
			seen, _ := w.requests()
			for _, r := range seen {
				if !strings.HasPrefix(r.URL.Path, "/v1/") || r.Host != serverName || len(r.TransferEncoding) > 0 && r.ContentLength > 0 {
					t.Errorf("the server got %s %s %s", r.Method, r.Host, r.URL)
				}
			}
			if len(seen) > 1 {
				t.Errorf("the server got %d requests", len(seen))
			}
		})
	}
}

func TestResponsesThatCannotBeSearchedAreRefusedOrDecoded(t *testing.T) {
	coding := ""
	w := newWorld(t, anyRule, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Accept-Encoding"); got != "identity" || r.Header.Get("Range") != "" {
			t.Errorf("Accept-Encoding %q, Range %q", got, r.Header.Get("Range"))
		}
		w.Header().Set("Content-Encoding", coding)
		if coding == "gzip" {
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, "the key is "+r.Header.Get("X-Api-Key"))
			z.Close() //nolint:errcheck // a test
			return
		}
		_, _ = io.WriteString(w, "the key is "+r.Header.Get("X-Api-Key"))
	}, nil)
	c := w.client(true)
	for _, coding = range []string{"gzip", "identity"} {
		response, body := w.do(c, "GET", origin+"/", "", "X-Api-Key", w.key, "Accept-Encoding", "gzip, br", "Range", "bytes=0-3")
		if body != "the key is "+w.key || response.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %q", coding, response.Status, body)
		}
	}
	coding = "br"
	if response, body := w.do(c, "GET", origin+"/", "", "X-Api-Key", w.key); response.StatusCode != http.StatusBadGateway || leaks(body) != "" || !strings.Contains(body, "cannot be searched") {
		t.Errorf("%s %q", response.Status, body)
	}
}

func TestStreamsPassAtOnce(t *testing.T) {
	next := make(chan struct{})
	w := newWorld(t, anyRule, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d %s\n\n", i, r.Header.Get("X-Api-Key"))
			w.(http.Flusher).Flush() //nolint:errcheck,forcetypeassert // a test
			<-next
		}
	}, nil)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, origin+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Api-Key", w.key)
	response, err := w.client(true).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	for i := range 3 { // the server waits until each event has come
		want := fmt.Sprintf("data: %d %s\n\n", i, w.key)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(response.Body, got); err != nil || string(got) != want {
			t.Fatalf("%q, %v", got, err)
		}
		next <- struct{}{}
	}
}

// TestNoDelayTellsTheStartOfASecret: a server that may not get the secret may belong to anybody. The start of the
// secret in its response passes at once. The whole secret is replaced all the same.
func TestNoDelayTellsTheStartOfASecret(t *testing.T) {
	more := make(chan struct{})
	w := newWorld(t, "GET https://"+serverName+"/*", func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/guess" {
			_, _ = io.WriteString(rw, "is it "+realKey[:20])
			_ = http.NewResponseController(rw).Flush() // the client notices
			<-more
		}
		_, _ = io.WriteString(rw, " or "+realKey+"?")
	}, func(o *Options) { o.Config.Secrets[0].Hosts = []string{"api." + serverName + ":443"} })
	client := w.client(false)
	response, err := client.Get("https://" + serverName + "/guess") //nolint:noctx // the timer below ends it
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	timer := time.AfterFunc(time.Minute, func() { _ = response.Body.Close() }) // it fails the test
	defer timer.Stop()
	first := make([]byte, 26)
	if _, err := io.ReadFull(response.Body, first); err != nil || string(first) != "is it "+realKey[:20] {
		t.Errorf("%q: %v", first, err)
	}
	close(more)
	if _, text := w.do(client, http.MethodGet, "https://"+serverName+"/whole", ""); text != " or "+w.key+"?" {
		t.Errorf("the whole secret comes as %q", text)
	}
}

func TestServersAreVerified(t *testing.T) {
	w := newWorld(t, "GET wrong.example", echo, func(o *Options) { o.Config.Secrets[0].Hosts = []string{"wrong.example:443"} })
	c := &http.Client{Transport: transportOn(w.dial("wrong.example", 443), w)}
	response, body := w.do(c, "GET", "https://wrong.example/", "", "X-Api-Key", w.key)
	if response.StatusCode != http.StatusBadGateway || !strings.Contains(body, "certificate of the server is not valid") {
		t.Errorf("%s %s", response.Status, body)
	}
	if seen, _ := w.requests(); len(seen) > 0 {
		t.Error("the server got a request")
	}
}

// TestRedactorFindsAShorterTextAtTheEnd: a text that a longer one begins with is found where the stream ends.
func TestRedactorFindsAShorterTextAtTheEnd(t *testing.T) {
	pairs := sortPairs([]pair{{[]byte("secret"), []byte("A"), nil}, {[]byte("secret-longer"), []byte("B"), nil}})
	for text, want := range map[string]string{
		"x secret": "x A", "x secret-": "x A-", "secret-longe": "A-longe", "secret-longer": "B", "secretsecret": "AA", "x secre": "x secre",
	} {
		for size := range 4 {
			got, err := io.ReadAll(newRedactor(&sized{strings.NewReader(text), size + 1}, pairs, 16<<10))
			if err != nil || string(got) != want {
				t.Errorf("%q by %d: %q, %v, want %q", text, size+1, got, err, want)
			}
		}
	}
}

func TestRedactorFindsTextsAtEveryBoundary(t *testing.T) {
	pairs := sortPairs([]pair{{[]byte("secret"), []byte("P"), nil}, {[]byte("secretly"), []byte("Q"), nil}, {[]byte("aab"), []byte("R"), nil}})
	text := "a secret, secretly; aaab secre secretlsecret aab"
	want := "a P, Q; aR secre PlP R"
	for size := 1; size <= len(text); size++ {
		r := newRedactor(&sized{strings.NewReader(text), size}, pairs, 16<<10)
		got, err := io.ReadAll(r)
		if err != nil || string(got) != want {
			t.Errorf("%d bytes at a time: %q, %v", size, got, err)
		}
	}
	if got := replaceAll([]byte(text), pairs); !bytes.Equal(got, []byte(want)) {
		t.Errorf("%q", got)
	}
}

// A sized reads at most n bytes at a time.
type sized struct {
	io.Reader
	n int
}

func (s *sized) Read(p []byte) (int, error) { return s.Reader.Read(p[:min(len(p), s.n)]) }
