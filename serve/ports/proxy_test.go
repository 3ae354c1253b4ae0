package ports_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/serve/ports"
)

// TestNoPartOfAnAnswerActsOnTheOrigin: a server in a sandbox sets no cookie and no other state of the origin, also not
// in an early response or after the body.
func TestNoPartOfAnAnswerActsOnTheOrigin(t *testing.T) {
	const state = "Set-Cookie: a=b\r\nAlt-Svc: h2=\"x:1\"\r\nClear-Site-Data: \"*\"\r\n"
	to := answering(t, "HTTP/1.1 103 Early Hints\r\nLink: </early>\r\n"+state+"\r\n"+
		"HTTP/1.1 200 OK\r\nX-Final: yes\r\nTrailer: Set-Cookie, X-Late\r\nTransfer-Encoding: chunked\r\n"+state+"\r\n"+
		"2\r\nhi\r\n0\r\nX-Late: yes\r\n"+state+"\r\n")
	proxy := httptest.NewServer(&ports.Proxy{To: to, Port: 8080, Prefix: "/p/", Fail: func(w http.ResponseWriter, err error) {
		t.Errorf("the proxy failed: %v", err)
		w.WriteHeader(http.StatusBadGateway)
	}})
	defer proxy.Close()
	c, err := net.Dial("tcp", proxy.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET /p/x HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: close\r\n\r\n")
	text, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"103 Early Hints", "</early>", "X-Final: yes", "hi", "X-Late: yes"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the answer lacks %q", want)
		}
	}
	for _, never := range []string{"a=b", "x:1", "Clear-Site-Data: "} {
		if strings.Contains(string(text), never) {
			t.Errorf("the answer has %q", never)
		}
	}
	if t.Failed() {
		t.Logf("%s", text)
	}
}

// answering returns the address of a server that reads one request, and answers with text.
func answering(t *testing.T, text string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, text)
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}
