// Package ports forwards connections to ports of the host's loopback interface to ports inside one sandbox.
package ports

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/forward"
)

// A Port is a port forward from the host's loopback to a port inside a sandbox. The sandbox's supervisor
// serves it until the last process of the sandbox has ended; the next supervisor does not open it again.
type Port struct {
	// Port is the port in the sandbox, Host the port on the host.
	Port uint16 `json:"port"`
	Host uint16 `json:"host"`
	// Addrs are the addresses on the host.
	Addrs []netip.AddrPort `json:"addrs"`
}

// MaxProxied is how many ports of one sandbox may be forwarded at the request of proxies, whose clients
// choose the ports, so that these cannot use up the host's ports. A proxy gets errs.ErrNoSpace for one more.
const MaxProxied = 64

// Forwards are the port forwards of one sandbox: ports of the host's loopback whose connections reach ports
// inside. They are safe for concurrent use.
type Forwards struct {
	name    string // the sandbox's name
	dial    Dial
	event   func(...network.Event)
	refusal error // why forwards are impossible, or nil

	mu      sync.Mutex
	open    map[uint16]*forward.Forwarder
	proxied map[uint16]bool // those of open that only a proxy has opened
}

// Dial connects to a port inside a sandbox. It returns the connection and the address inside to which it
// connected, of IPv4 or IPv6.
type Dial = func(ctx context.Context, port uint16) (net.Conn, netip.Addr, error)

// New returns an empty set of port forwards of a sandbox. It opens none if the sandbox uses the host's
// network. dial connects to a port inside, and event receives an event about each connection.
func New(rec *catalog.Record, dial Dial, event func(...network.Event)) *Forwards {
	in := &Forwards{name: rec.Name, dial: dial, event: event, open: map[uint16]*forward.Forwarder{}, proxied: map[uint16]bool{}}
	if rec.Policy.Network == string(isolate.NetworkHost) {
		in.refusal = &errs.Error{
			Op: "opening a port", Path: rec.Name, Kind: errs.ErrNotSupported, Err: errors.New("the sandbox uses the host's network: its ports are the host's"),
		}
	}
	return in
}

// Add forwards the port host of the host's loopback to the sandbox's port. A host of 0 means a free port, or
// that of an existing forward. proxy means that a proxy requests it, which MaxProxied bounds. Errors:
// errs.ErrExists, ErrBusy, ErrDenied, ErrNotSupported; ErrNoSpace for a proxy.
func (in *Forwards) Add(port, host uint16, proxy bool) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	fail := func(kind, err error, hints ...string) error {
		return &errs.Error{Op: "opening a port", Path: decimal(port), Kind: kind, Err: err, Hints: hints}
	}
	if in.refusal != nil {
		return in.refusal
	}
	if old := in.open[port]; old != nil {
		if at := old.Addrs()[0]; host != 0 && at.Port() != host {
			return fail(errs.ErrExists, errors.New("the port is already forwarded from "+at.String()), in.command("--close", decimal(port)), in.command(decimal(port)+":"+decimal(host)))
		}
		if !proxy {
			delete(in.proxied, port)
		}
		return nil
	}
	if proxy && len(in.proxied) >= MaxProxied {
		return fail(errs.ErrNoSpace, errors.New("proxies have opened "+strconv.Itoa(MaxProxied)+" ports of the sandbox already"), in.command("--close", "PORT"))
	}
	one, err := forward.Open(forward.Options{Port: port, Host: host, Dial: in.dial, Event: in.event})
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fail(errs.ErrBusy, errors.New("port "+decimal(host)+" of the host is in use, perhaps by another sandbox"), in.command(decimal(port))+"   # at a free port")
	case err != nil:
		return fail(errs.KindOf(err), err)
	}
	in.open[port] = one
	if proxy {
		in.proxied[port] = true
	}
	return nil
}

// command returns the command line of snapfs port with these arguments for the sandbox, for the hint of an
// error.
func (in *Forwards) command(args ...string) string {
	return strings.Join(append([]string{"snapfs port", in.name}, args...), " ")
}

func decimal(port uint16) string { return strconv.Itoa(int(port)) }

// Remove ends the port forward to the sandbox's port and resets its connections. Errors: errs.ErrNotFound.
func (in *Forwards) Remove(port uint16) error {
	in.mu.Lock()
	one := in.open[port]
	delete(in.open, port)
	delete(in.proxied, port)
	in.mu.Unlock()
	if one == nil {
		return &errs.Error{
			Op: "closing a port", Path: decimal(port), Kind: errs.ErrNotFound, Err: errors.New("the port is not open"),
			Hints: []string{in.command() + "   # list the open ports"},
		}
	}
	return one.Close()
}

// List returns the open port forwards of the sandbox, ordered by the port inside it.
func (in *Forwards) List() []Port {
	in.mu.Lock()
	defer in.mu.Unlock()
	list := []Port{}
	for port, one := range in.open {
		list = append(list, Port{Port: port, Host: one.Addrs()[0].Port(), Addrs: one.Addrs()})
	}
	slices.SortFunc(list, func(a, b Port) int { return cmp.Compare(a.Port, b.Port) })
	return list
}

// Close ends all port forwards of the sandbox. The container of the sandbox must not be frozen.
func (in *Forwards) Close() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	var failures []error
	for port, one := range in.open {
		failures = append(failures, one.Close())
		delete(in.open, port)
		delete(in.proxied, port)
	}
	return errors.Join(failures...)
}
