//go:build linux

package edge

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/network"
)

// socket returns a socket that is connected in the namespace and used from here, so that only the network is
// measured.
func (s *space) socket(t testing.TB, kind string, to netip.AddrPort) net.Conn {
	t.Helper()
	treetest.NeedRoot(t)
	how := unix.SOCK_STREAM
	if kind == "udp" {
		how = unix.SOCK_DGRAM
	}
	fd := -1
	if err := s.enter(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, how|unix.SOCK_CLOEXEC, 0)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), kind)
	defer f.Close()
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
	conn, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// enter calls f in the namespace. The thread comes back: if it ended, the processes that it started would be
// killed (prctl(2), PR_SET_PDEATHSIG).
func (s *space) enter(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer own.Close()
	theirs, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", s.pid))
	if err != nil {
		return err
	}
	defer theirs.Close()
	if err := unix.Setns(int(theirs.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	return errors.Join(f(), unix.Setns(int(own.Fd()), unix.CLONE_NEWNET))
}

// BenchmarkReady measures from New to the first reply of the resolver.
func BenchmarkReady(b *testing.B) {
	w := newWorld(b, "site.example")
	_ = w.edge.Close()
	conn := w.socket(b, "udp", netip.AddrPortFrom(network.Gateway4().Addr(), dnsPort))
	question, answer := ask(b, "site.example.", dnsmessage.TypeA), make([]byte, 512)
	var ready time.Duration
	for b.Loop() {
		start := time.Now()
		e, err := New(w.tun, Options{Rules: w.edge.Rules()})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := conn.Write(question); err != nil {
			b.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := conn.Read(answer); err != nil {
			b.Fatal(err)
		}
		ready += time.Since(start)
		_ = e.Close()
	}
	b.ReportMetric(float64(ready.Microseconds())/float64(b.N), "µs/ready")
}

// ways are how a client reaches a server: through the proxy, through a relay that copies as often, over
// loopback alone, and directly.
func ways(b *testing.B, serve func(net.Conn)) map[string]func(testing.TB) net.Conn {
	w := newWorld(b, "site.example")
	w.name("site.example", "203.0.113.10")
	w.serve(b, "203.0.113.10:1", serve)
	server := w.places[netip.MustParseAddrPort("203.0.113.10:1")]
	w.serve(b, "203.0.113.10:2", func(in net.Conn) {
		out, err := net.Dial("tcp", server)
		if err != nil {
			return
		}
		defer out.Close()
		done := make(chan bool)
		go func() {
			_, _ = io.CopyBuffer(struct{ io.Writer }{in}, struct{ io.Reader }{out}, make([]byte, copySize))
			_ = closeWrite(in)
			close(done)
		}()
		_, _ = io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, make([]byte, copySize))
		_ = closeWrite(out)
		<-done
	})
	dial := func(place string) func(testing.TB) net.Conn {
		return func(t testing.TB) net.Conn {
			conn, err := net.Dial("tcp", place)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
	}
	four, _ := w.edge.names.addrs("site.example")
	return map[string]func(testing.TB) net.Conn{
		"edge":     func(t testing.TB) net.Conn { return w.socket(t, "tcp", netip.AddrPortFrom(four, 1)) },
		"relay":    dial(w.places[netip.MustParseAddrPort("203.0.113.10:2")]),
		"straight": dial(server),
	}
}

// BenchmarkPingPong sends a byte there and one back.
func BenchmarkPingPong(b *testing.B) {
	for name, connect := range ways(b, echo) {
		b.Run(name, func(b *testing.B) {
			conn, one := connect(b), []byte{0}
			for b.Loop() {
				if _, err := conn.Write(one); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(conn, one); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkUpload and BenchmarkDownload transfer 1 MiB at a time.
func BenchmarkUpload(b *testing.B) {
	for name, connect := range ways(b, swallow) {
		b.Run(name, func(b *testing.B) {
			conn, part := connect(b), make([]byte, 1<<20)
			b.SetBytes(int64(len(part)))
			for b.Loop() {
				if _, err := conn.Write(part); err != nil {
					b.Fatal(err)
				}
			}
			_ = closeWrite(conn)
			if _, err := io.Copy(io.Discard, conn); err != nil { // all of it has arrived
				b.Fatal(err)
			}
		})
	}
}

func swallow(conn net.Conn) {
	_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, conn, make([]byte, copySize))
}

// BenchmarkDownload is the other direction.
func BenchmarkDownload(b *testing.B) {
	pour := func(conn net.Conn) {
		part := make([]byte, 1<<20)
		for {
			if _, err := conn.Write(part); err != nil {
				return
			}
		}
	}
	for name, connect := range ways(b, pour) {
		b.Run(name, func(b *testing.B) {
			conn, part := connect(b), make([]byte, 1<<20)
			b.SetBytes(int64(len(part)))
			for b.Loop() {
				if _, err := io.ReadFull(conn, part); err != nil {
					b.Fatal(err)
				}
			}
			_ = conn.Close()
		})
	}
}

// BenchmarkConnect opens a connection, sends a byte each way, and closes it.
func BenchmarkConnect(b *testing.B) {
	for name, connect := range ways(b, echo) {
		b.Run(name, func(b *testing.B) {
			one := []byte{0}
			for b.Loop() {
				conn := connect(b)
				_, _ = conn.Write(one)
				if _, err := io.ReadFull(conn, one); err != nil && !errors.Is(err, io.EOF) {
					b.Fatal(err)
				}
				_ = conn.Close()
			}
		})
	}
}
