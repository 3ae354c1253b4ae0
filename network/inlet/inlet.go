// Package inlet is the way into a sandbox: a TCP port of this host's loopback, behind which
// a port of the sandbox's own loopback lies.
//
//	client ─► 127.0.0.1:HOST, [::1]:HOST ─► inlet ─► 127.0.0.1:PORT or [::1]:PORT of the sandbox
//
// It is the user's own way in, so no rule is asked. Whoever may use the host's loopback may
// use it: every user of the host. A connection that nobody takes inside is reset.
package inlet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/network"
)

// Most is how many connections one inlet has at once; further ones are reset.
const Most = 256

// dialTime bounds how long a connection waits for the server inside.
const dialTime = 20 * time.Second

// Options of an inlet. Dial and Event are needed.
type Options struct {
	// Port is where connections lead inside, and Host where they begin on the
	// host; Host 0 is one that is free.
	Port, Host uint16
	// Dial connects to the port inside, and answers with the address that took the connection.
	Dial func(ctx context.Context, port uint16) (net.Conn, netip.Addr, error)
	// Event is called with each decision and each end, from many goroutines.
	Event func(network.Event)
}

// An Inlet is one port that leads into a sandbox. All methods are safe for many goroutines.
type Inlet struct {
	options Options
	addrs   []netip.AddrPort
	listens []net.Listener
	ctx     context.Context // done when the inlet is closed
	cancel  context.CancelFunc
	work    sync.WaitGroup

	mu    sync.Mutex // guards what follows
	conns map[net.Conn]struct{}
	open  int
	ids   uint64
}

// Open listens at 127.0.0.1, and at ::1 where the host has it. An error leaves nothing;
// syscall.EADDRINUSE: another program has the port, EACCES: it is root's.
func Open(o Options) (*Inlet, error) {
	in := &Inlet{options: o, conns: map[net.Conn]struct{}{}}
	in.ctx, in.cancel = context.WithCancel(context.Background())
	const tries = 16 // a port that is free for one family may be another's for the other
	var err error
	for range tries {
		if err = in.listen(o.Host); err == nil || o.Host != 0 || !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		in.cancel()
		return nil, err
	}
	for _, l := range in.listens {
		in.work.Go(func() { in.accept(l) })
	}
	return in, nil
}

func (in *Inlet) listen(port uint16) error {
	for _, addr := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		l, err := net.Listen("tcp", netip.AddrPortFrom(addr, port).String())
		if err != nil {
			if addr.Is6() && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)) {
				continue // this host has no IPv6
			}
			for _, l := range in.listens {
				err = errors.Join(err, l.Close())
			}
			in.listens, in.addrs = nil, nil
			return err
		}
		at, _ := l.Addr().(*net.TCPAddr)
		port = at.AddrPort().Port()
		in.listens, in.addrs = append(in.listens, l), append(in.addrs, at.AddrPort())
	}
	return nil
}

// Addrs are where it listens on the host: one port, of each family that the host has.
func (in *Inlet) Addrs() []netip.AddrPort { return in.addrs }

// Port is where it leads inside.
func (in *Inlet) Port() uint16 { return in.options.Port }

// Close ends the inlet with its connections, which are reset, and answers when
// nothing of it is left. It is safe to repeat.
func (in *Inlet) Close() error {
	in.cancel()
	var errs []error
	for _, l := range in.listens {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	in.mu.Lock()
	for conn := range in.conns {
		reset(conn)
	}
	in.mu.Unlock()
	in.work.Wait()
	return errors.Join(errs...)
}

func (in *Inlet) accept(l net.Listener) {
	const pause = 10 * time.Millisecond
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			in.work.Go(func() { in.serve(conn) })
		case in.ctx.Err() != nil:
			return
		default: // this process has no descriptor left: it has, later
			time.Sleep(pause)
		}
	}
}

// serve carries one connection from its beginning to its end.
func (in *Inlet) serve(outside net.Conn) {
	ev := network.Event{Kind: network.Port, Port: in.options.Port}
	refuse := func(why string) {
		ev.Why = why
		in.tell(ev)
		reset(outside)
	}
	var ok bool
	if ev.ID, ok = in.enter(outside); !ok {
		refuse("too many connections at once")
		return
	}
	defer in.leave(outside)
	ctx, stop := context.WithTimeout(in.ctx, dialTime)
	inside, addr, err := in.options.Dial(ctx, in.options.Port)
	stop()
	ev.Addr = addr
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		refuse("nobody listens there")
		return
	case err != nil:
		refuse(strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	in.add(inside)
	defer in.drop(inside)
	ev.Allowed, ev.Rule = true, in.rule()
	in.tell(ev)
	ev.Ended = true
	ev.BytesIn, ev.BytesOut = relay(inside, outside)
	in.tell(ev)
}

// rule is what lets connections in, as events name it.
func (in *Inlet) rule() string { return "port " + in.addrs[0].String() }

func (in *Inlet) tell(ev network.Event) {
	ev.Time = time.Now()
	in.options.Event(ev)
}

// enter counts a connection, unless there are too many.
func (in *Inlet) enter(conn net.Conn) (id uint64, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ids++
	if in.open >= Most {
		return in.ids, false
	}
	in.open++
	in.keep(conn)
	return in.ids, true
}

func (in *Inlet) leave(conn net.Conn) {
	in.mu.Lock()
	in.open--
	in.mu.Unlock()
	in.drop(conn)
}

func (in *Inlet) add(conn net.Conn) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.keep(conn)
}

// keep is called with mu held. Close resets what is kept.
func (in *Inlet) keep(conn net.Conn) {
	in.conns[conn] = struct{}{}
	if in.ctx.Err() != nil {
		reset(conn)
	}
}

func (in *Inlet) drop(conn net.Conn) {
	in.mu.Lock()
	delete(in.conns, conn)
	in.mu.Unlock()
	_ = conn.Close() // all was said, or it was reset
}

// relay carries bytes both ways until both ends are done, or one is broken, which is
// carried on as a reset. The kernel moves them (splice(2)): they do not come into this process.
func relay(inside, outside net.Conn) (in, out int64) {
	var both sync.WaitGroup
	both.Go(func() { in = carry(inside, outside) })
	out = carry(outside, inside)
	both.Wait()
	return in, out
}

func carry(to, from net.Conn) int64 {
	n, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); err == nil && ok {
		err = half.CloseWrite()
	}
	if err != nil {
		reset(to)
		reset(from)
	}
	return n
}

// reset ends a connection so that its other end sees that it was cut.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // closes softly where it does not work
	}
	_ = conn.Close()
}

// Parse reads PORT and PORT:HOSTPORT.
func Parse(text string) (port, host uint16, err error) {
	inner, outer, named := strings.Cut(text, ":")
	if port, err = number(inner); err == nil && named {
		host, err = number(outer)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("port %q: %w", text, err)
	}
	return port, host, nil
}

func number(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, errors.New("PORT or PORT:HOSTPORT, each from 1 to 65535")
	}
	return uint16(n), nil
}
