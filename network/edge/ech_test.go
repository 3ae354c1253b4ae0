//go:build linux

package edge

import (
	"crypto/tls"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/snapfs/snapfs/network"
)

// TestGREASEPassesToServersWithoutKeys for encrypted ClientHellos, and not to a server with keys or one that
// does not reply. The proxy queries a server once.
func TestGREASEPassesToServersWithoutKeys(t *testing.T) {
	w := newWorld(t, "*.example")
	certificate, _ := certify(t, "plain.example", "old.example", "keys.example")
	list, key, err := echImitation("keys.example")
	if err != nil {
		t.Fatal(err)
	}
	const listHead = 2
	for _, c := range []struct {
		name, at string
		config   *tls.Config
		passes   bool
		why      string
	}{
		{"plain.example", "203.0.113.10", &tls.Config{}, true, ""},
		{"old.example", "203.0.113.11", &tls.Config{MaxVersion: tls.VersionTLS12}, true, ""},
		{"keys.example", "203.0.113.12", &tls.Config{
			EncryptedClientHelloKeys: []tls.EncryptedClientHelloKey{{Config: list[listHead:], PrivateKey: key.Bytes(), SendAsRetry: true}},
		}, false, "the server has keys for it"},
		{"none.example", "203.0.113.13", &tls.Config{}, false, "did not reply"},
	} {
		w.name(c.name, c.at)
		var asked atomic.Int32
		c.config.Certificates = []tls.Certificate{certificate}
		if c.name != "none.example" {
			w.serve(t, c.at+":443", func(conn net.Conn) {
				asked.Add(1)
				_ = tls.Server(conn, c.config).Handshake()
			})
		} else {
			w.serve(t, c.at+":443", func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) })
		}
		hello := withExtension(clientHello(t, c.name), extECH, []byte{0, 0, 1, 0, 1, 7, 0, 0, 0, 0})
		for range 2 {
			r := w.play(t, step{Dial: "tcp4 " + c.name + ":443"}, step{Send: hello}, step{Read: 5})
			if got := strings.HasPrefix(string(r.Read), "\x16\x03"); got != c.passes {
				t.Errorf("%s: %q, %s", c.name, r.Read, r.Err)
			}
		}
		if !c.passes {
			w.awaitEvent(t, c.name, func(ev network.Event) bool { return ev.Name == c.name && ev.Ended && strings.Contains(ev.Why, c.why) })
		}
		if most := int32(2 + 2); asked.Load() > most {
			t.Errorf("%s was asked %d times", c.name, asked.Load())
		}
	}
}
