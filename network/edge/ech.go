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

// Browsers send an imitation of an encrypted ClientHello to servers that have no keys for one
// (GREASE, RFC 9849, 6.2), and nobody can tell it from a real one. It is harmless exactly there: a server
// without keys hears the outer name alone. So the edge asks the server, with an imitation of
// its own: one that has keys answers with those that it wants to be used.
//
// What is believed of the server: that it says so, as the standard asks of it, and that its neighbours at
// the same address have what it has.

const (
	echTime    = 5 * time.Second // for the question
	echKept    = 10 * time.Minute
	echFailed  = 10 * time.Second // until a question that got no answer is asked again
	mostServer = 1024             // are remembered
)

// An echServer is whom a client speaks to.
type echServer struct {
	name string
	at   netip.AddrPort
}

// An echAnswer is what was found out, guarded by mu: who comes meanwhile waits.
type echAnswer struct {
	mu    sync.Mutex
	why   string // an encrypted ClientHello may not pass, or ""
	until time.Time
}

// echServers remembers answers. The zero value is empty.
type echServers struct {
	mu    sync.Mutex
	known map[echServer]*echAnswer
}

func (s *echServers) of(server echServer) *echAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.known[server]
	if a == nil {
		if s.known == nil || len(s.known) >= mostServer {
			s.known = map[echServer]*echAnswer{}
		}
		a = &echAnswer{}
		s.known[server] = a
	}
	return a
}

// hides says why an encrypted ClientHello may not pass to a target, or "". It may ask the server, which
// goes on when who wanted to know has gone.
func (e *Edge) hides(t target) string {
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
	a.why, a.until = "", time.Now().Add(echKept)
	switch {
	case err != nil:
		a.why, a.until = hiddenName+", and whether the server could is not known ("+unreached(err)+")"+hiddenHint, time.Now().Add(echFailed)
	case keys:
		a.why = hiddenName + ", and the server has keys for it" + hiddenHint
	}
	return a.why
}

// hasKeys asks a server whether it has keys for encrypted ClientHellos.
func (e *Edge) hasKeys(ctx context.Context, t target) (bool, error) {
	imitation, _, err := echImitation(t.name)
	if err != nil {
		return false, err
	}
	_, err = e.shake(ctx, t, &tls.Config{
		ServerName: t.name, MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"},
		EncryptedClientHelloConfigList: imitation,
		// Nothing is said to the server, and what it says of itself the client will check.
		EncryptedClientHelloRejectionVerify: func(tls.ConnectionState) error { return nil },
	})
	var refused *tls.ECHRejectionError
	if errors.As(err, &refused) {
		return len(refused.RetryConfigList) > 0, nil
	}
	if err == nil {
		return false, errors.New("it has understood what means nothing")
	}
	version, plain := e.shake(ctx, t, &tls.Config{ServerName: t.name, InsecureSkipVerify: true}) //nolint:gosec // as above
	if plain == nil && version < tls.VersionTLS13 {
		return false, nil // it is older than encrypted ClientHellos, which need TLS 1.3
	}
	return false, err
}

// shake makes a connection of its own to a target, and answers with the version of TLS.
func (e *Edge) shake(ctx context.Context, t target, c *tls.Config) (uint16, error) {
	conn, err := e.dialOne(ctx, "tcp", netip.AddrPortFrom(t.addr, t.port), 1)
	if err != nil {
		return 0, err
	}
	defer drop(conn)
	client := tls.Client(conn, c)
	err = client.HandshakeContext(ctx)
	return client.ConnectionState().Version, err
}

// echImitation is a list of one configuration (RFC 9849, 4), with a key whose other half it answers
// with, and which nobody else has.
func echImitation(name string) (list []byte, other *ecdh.PrivateKey, err error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	public := key.PublicKey().Bytes()
	b := []byte{public[0], 0, 0x20} // a number for it, X25519
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(public))), public...)
	b = append(b, 0, 4, 0, 1, 0, 1) // HKDF-SHA256, AES-128-GCM
	b = append(b, 0, byte(len(name)))
	b = append(b, name...)
	b = append(b, 0, 0) // no extensions
	config := binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(b)))
	config = append(config, b...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...), key, nil
}
