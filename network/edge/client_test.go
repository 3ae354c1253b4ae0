//go:build linux

package edge

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// step is one action of a client inside; one field is set.
type step struct {
	Dial   string // "tcp HOST:PORT", "udp HOST:PORT"
	Life   int    // with Dial: milliseconds, or 0 for 20 seconds
	Send   []byte
	Slow   bool // with Send: each byte in a packet of its own
	Read   int  // number of bytes, or -1 for all up to the end
	Close  bool // the sending half
	Wait   int  // milliseconds
	TLS    *tlsHello
	Look   string // look up a name
	Unplug string // take down an interface
	// Flood sends that many bytes, Drain reads as many, Pong sends a byte and reads one that often.
	Flood, Drain int64
	Pong         int
	// Crowd does all of its steps concurrently that often.
	Crowd      int
	CrowdSteps []step
}

// tlsHello are the settings of a TLS client.
type tlsHello struct {
	SNI   string
	Roots []byte
}

// result is the outcome of the steps.
type result struct {
	Read  []byte // all bytes read
	Err   string // of the step that failed, without addresses
	At    int    // index of that step
	Took  time.Duration
	Addrs []string
	Errs  []string // of a crowd
}

// play runs the steps in a client inside.
func (s *space) play(t testing.TB, steps ...step) result {
	t.Helper()
	in, err := json.Marshal(steps)
	if err != nil {
		t.Fatal(err)
	}
	o := s.run(t, command{Args: []string{"/proc/self/exe"}, Env: []string{partEnv + "=" + partClient}, Stdin: in})
	var r result
	if err := json.Unmarshal([]byte(o.Out), &r); err != nil {
		t.Fatalf("client: %v: %s%s", err, o.Out, o.Err)
	}
	return r
}

// client makes this binary act as a client.
func client() {
	var steps []step
	if err := json.NewDecoder(os.Stdin).Decode(&steps); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(playAll(steps))
}

func playAll(steps []step) (r result) {
	p := &player{result: &r}
	defer p.close()
	start := time.Now()
	for i, s := range steps {
		if err := p.step(s); err != nil {
			r.Err, r.At = plain(err), i
			break
		}
		if s.Dial != "" {
			start = time.Now()
		}
	}
	r.Took = time.Since(start)
	return r
}

// plain removes addresses and ports.
func plain(err error) string {
	var op *net.OpError
	var sys interface{ Timeout() bool }
	switch {
	case errors.As(err, &op) && op.Err != nil && !strings.Contains(op.Err.Error(), "lookup"):
		return op.Op + ": " + op.Err.Error()
	case errors.As(err, &sys) && sys.Timeout():
		return "timeout: " + err.Error()
	}
	return err.Error()
}

type player struct {
	conn   net.Conn
	result *result
}

func (p *player) close() {
	if p.conn != nil {
		_ = p.conn.Close()
	}
}

func (p *player) step(s step) error {
	ctx, stop := context.WithTimeout(context.Background(), 60*time.Second)
	defer stop()
	switch {
	case s.Dial != "":
		kind, to, _ := strings.Cut(s.Dial, " ")
		conn, err := (&net.Dialer{Timeout: 25 * time.Second}).DialContext(ctx, kind, to)
		if err != nil {
			return err
		}
		p.conn = conn
		life := 20 * time.Second
		if s.Life > 0 {
			life = time.Duration(s.Life) * time.Millisecond
		}
		return conn.SetDeadline(time.Now().Add(life))
	case s.Look != "":
		addrs, err := net.DefaultResolver.LookupHost(ctx, s.Look)
		p.result.Addrs = addrs
		return err
	case s.TLS != nil:
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(s.TLS.Roots)
		c := tls.Client(p.conn, &tls.Config{ServerName: s.TLS.SNI, RootCAs: roots, InsecureSkipVerify: s.TLS.SNI == "" || s.TLS.Roots == nil})
		p.conn = c
		return c.HandshakeContext(ctx)
	case s.Wait > 0:
		time.Sleep(time.Duration(s.Wait) * time.Millisecond)
		return nil
	case s.Close:
		return closeWrite(p.conn)
	case s.Unplug != "":
		return removeLink(s.Unplug)
	case s.Crowd > 0:
		return p.crowd(s)
	}
	return p.bytes(s)
}

func (p *player) bytes(s step) error {
	switch {
	case s.Slow:
		for i := range s.Send {
			if _, err := p.conn.Write(s.Send[i : i+1]); err != nil {
				return err
			}
		}
		return nil
	case s.Send != nil:
		_, err := p.conn.Write(s.Send)
		return err
	case s.Flood > 0:
		_, err := io.CopyN(p.conn, zeros{}, s.Flood)
		return err
	case s.Drain > 0:
		_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(p.conn, s.Drain), make([]byte, 128<<10))
		return err
	case s.Pong > 0:
		one := []byte{1}
		for range s.Pong {
			if _, err := p.conn.Write(one); err != nil {
				return err
			}
			if _, err := io.ReadFull(p.conn, one); err != nil {
				return err
			}
		}
		return nil
	case s.Read < 0:
		b, err := io.ReadAll(p.conn)
		p.result.Read = append(p.result.Read, b...)
		return err
	default:
		b := make([]byte, s.Read)
		n, err := io.ReadFull(p.conn, b)
		p.result.Read = append(p.result.Read, b[:n]...)
		return err
	}
}

func (p *player) crowd(s step) error {
	results := make(chan result)
	for range s.Crowd {
		go func() { results <- playAll(s.CrowdSteps) }()
	}
	for range s.Crowd {
		r := <-results
		p.result.Read = append(p.result.Read, r.Read...)
		if r.Err != "" {
			p.result.Errs = append(p.result.Errs, fmt.Sprintf("step %d: %s", r.At, r.Err))
		}
	}
	return nil
}

// zeros is an endless reader of them.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p[:min(len(p), 1)]); return len(p), nil }
