//go:build linux

package edge

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls" //nolint:depguard // a process of its own pays for it: 0.4 ms at its start
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"time"
)

// Browsers send an imitation of an encrypted ClientHello to servers without keys for one (GREASE, RFC 9849,
// 6.2), and it looks exactly like a real one. It is harmless exactly there: a server without keys reads only
// the outer name. So the proxy asks the server, with an imitation of its own: a server with keys replies with
// the keys to use.
//
// The proxy assumes that the server replies as the standard demands, and that other servers at the same address
// have the same keys.

const (
	echTime     = 5 * time.Second // for one query
	echLifetime = 10 * time.Minute
	echRetry    = 10 * time.Second // until a failed query is repeated
	maxServers  = 1024             // size of the cache
)

// An echServer identifies a server, by name and address, in the cache of servers that may have keys for
// encrypted ClientHellos (ECH).
type echServer struct {
	name string
	at   netip.AddrPort
}

// An echAnswer says whether an encrypted ClientHello (ECH) to one server is refused, as the proxy found out
// by asking the server. mu is held during the query, so that other connections wait for the result.
type echAnswer struct {
	mu    sync.Mutex
	why   string // why an encrypted ClientHello is refused, or ""
	until time.Time
}

// An echServers remembers for which servers an encrypted ClientHello (ECH) is refused: those that have keys
// for it, or that did not reply whether they have. The zero value is empty.
type echServers struct {
	mu    sync.Mutex
	known map[echServer]*echAnswer
}

func (s *echServers) of(server echServer) *echAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.known[server]
	if a == nil {
		if s.known == nil || len(s.known) >= maxServers {
			s.known = map[echServer]*echAnswer{}
		}
		a = &echAnswer{}
		s.known[server] = a
	}
	return a
}

// echRefusal returns why an encrypted ClientHello to the server t is refused, or "". It may query the server
// whether it has keys for one; the query continues if the caller's connection ends.
func (e *Edge) echRefusal(t target) string {
	if t.terms.ECH {
		return ""
	}
	a := e.ech.of(echServer{t.name, netip.AddrPortFrom(t.addr, t.port)})
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().Before(a.until) {
		return a.why
	}
	ctx, stop := context.WithTimeout(e.ctx, echTime)
	defer stop()
	keys, err := e.hasKeys(ctx, t)
	a.why, a.until = "", time.Now().Add(echLifetime)
	switch {
	case err != nil:
		a.why, a.until = hiddenName+", and the server did not reply whether it has keys ("+unreached(err)+")"+hiddenHint, time.Now().Add(echRetry)
	case keys:
		a.why = hiddenName + ", and the server has keys for it" + hiddenHint
	}
	return a.why
}

// hasKeys reports whether the server t has keys for encrypted ClientHellos. It connects to the server with a
// wrong key; a server with keys then replies with them. An error means that the reply shows neither.
func (e *Edge) hasKeys(ctx context.Context, t target) (bool, error) {
	imitation, _, err := echImitation(t.name)
	if err != nil {
		return false, err
	}
	_, err = e.handshake(ctx, t, &tls.Config{
		ServerName: t.name, MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"},
		EncryptedClientHelloConfigList: imitation,
		// No data is sent to the server, and the client itself verifies it later.
		EncryptedClientHelloRejectionVerify: func(tls.ConnectionState) error { return nil },
	})
	var refused *tls.ECHRejectionError
	if errors.As(err, &refused) {
		return len(refused.RetryConfigList) > 0, nil
	}
	if err == nil {
		return false, errors.New("the server accepted a made-up key")
	}
	version, plain := e.handshake(ctx, t, &tls.Config{ServerName: t.name, InsecureSkipVerify: true}) //nolint:gosec // as above
	if plain == nil && version < tls.VersionTLS13 {
		return false, nil // TLS before 1.3 has no encrypted ClientHello
	}
	return false, err
}

// handshake makes a TLS connection with the configuration c to the server t, closes it, and returns the TLS
// version. It finds out how the server replies to an encrypted ClientHello.
func (e *Edge) handshake(ctx context.Context, t target, c *tls.Config) (uint16, error) {
	conn, err := e.dialOne(ctx, "tcp", netip.AddrPortFrom(t.addr, t.port), 1)
	if err != nil {
		return 0, err
	}
	defer drop(conn)
	client := tls.Client(conn, c)
	err = client.HandshakeContext(ctx)
	return client.ConnectionState().Version, err
}

// echImitation returns an ECH configuration list (RFC 9849, 4) for the server name with one fresh key, which
// the server does not have, and as other the private half of the key. With the list the proxy finds out how
// the server replies to an unknown key.
func echImitation(name string) (list []byte, other *ecdh.PrivateKey, err error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	public := key.PublicKey().Bytes()
	b := []byte{public[0], 0, 0x20} // an id, X25519
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(public))), public...)
	b = append(b, 0, 4, 0, 1, 0, 1) // HKDF-SHA256, AES-128-GCM
	b = append(b, 0, byte(len(name)))
	b = append(b, name...)
	b = append(b, 0, 0) // no extensions
	config := binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(b)))
	config = append(config, b...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...), key, nil
}
