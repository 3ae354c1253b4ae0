package supervise

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/egress"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/network/forward"
)

// A Port is a port forward from the host's loopback to a sandbox's. Its supervisor serves it
// until the last process of the sandbox has ended; the next supervisor does not open it again.
type Port struct {
	// Port is the port in the sandbox, Host the port on the host.
	Port uint16 `json:"port"`
	Host uint16 `json:"host"`
	// Addrs are the addresses on the host.
	Addrs []netip.AddrPort `json:"addrs"`
}

// OpenPort forwards a port of the host's loopback to a sandbox's port. If host is 0, it picks
// a free port, or returns an existing forward. Errors: errs.ErrNotFound (no such sandbox, or
// it is not running), ErrNotSupported (it uses the host's network), ErrExists (forwarded from
// another host port), ErrBusy (another program uses the host port, or the supervisor does not
// reply), ErrDenied (the host port is privileged).
func (sv *Manager) OpenPort(ctx context.Context, name string, port, host uint16) (Port, error) {
	return sv.openPort(ctx, name, portRequest{Open: port, Host: host})
}

func (sv *Manager) openPort(ctx context.Context, name string, a portRequest) (Port, error) {
	list, err := sv.requestPorts(ctx, name, a)
	for _, p := range list {
		if p.Port == a.Open {
			return p, err
		}
	}
	return Port{}, err
}

// MaxProxyPorts bounds the forwards of one sandbox that proxies have opened.
const MaxProxyPorts = 64

// OpenProxyPort is OpenPort, with a free port of the host, for a proxy whose clients choose
// ports. At most MaxProxyPorts forwards of a sandbox come from it, and those do not limit
// OpenPort. Errors: also errs.ErrNoSpace (there are as many).
func (sv *Manager) OpenProxyPort(ctx context.Context, name string, port uint16) (Port, error) {
	return sv.openPort(ctx, name, portRequest{Open: port, Proxy: true})
}

// ClosePort ends a port forward and resets its connections. Errors: errs.ErrNotFound.
func (sv *Manager) ClosePort(ctx context.Context, name string, port uint16) error {
	_, err := sv.requestPorts(ctx, name, portRequest{Close: port})
	return err
}

// Ports returns the port forwards of a sandbox, ordered by the port inside; none if it is not
// running. Errors: errs.ErrNotFound.
func (sv *Manager) Ports(ctx context.Context, name string) ([]Port, error) {
	rec, err := sv.cat.Get(name)
	if err != nil {
		return nil, err
	}
	conn, err := sv.Dial(ctx, rec)
	if err != nil || conn == nil {
		return []Port{}, err
	}
	return sendPortRequest(ctx, conn, name, portRequest{})
}

// portRequest opens or closes a port forward, or with neither set lists them.
type portRequest struct {
	Open  uint16 `json:"open,omitempty"`
	Host  uint16 `json:"host,omitempty"`
	Close uint16 `json:"close,omitempty"`
	// Proxy says that a proxy opens the forward, see MaxProxyPorts. An older supervisor sets
	// no bound.
	Proxy bool `json:"proxy,omitempty"`
}

// requestPorts sends a port request to a sandbox's supervisor and returns the forwards that
// are open afterwards. Errors: also errs.ErrNotFound if none runs.
func (sv *Manager) requestPorts(ctx context.Context, name string, a portRequest) ([]Port, error) {
	rec, err := sv.cat.Get(name)
	if err != nil {
		return nil, err
	}
	conn, err := sv.Dial(ctx, rec)
	if err != nil {
		return nil, err
	}
	if conn == nil {
		return nil, &errs.Error{
			Op: "opening a port", Path: name, Kind: errs.ErrNotFound, Err: errors.New("sandbox " + name + " is not running"),
			Hints: []string{"snapfs exec " + name + " -- COMMAND"},
		}
	}
	return sendPortRequest(ctx, conn, name, a)
}

// sendPortRequest sends a port request on conn, closes conn and returns the forwards that are
// open afterwards.
func sendPortRequest(ctx context.Context, conn *fdsock.Conn, name string, a portRequest) ([]Port, error) {
	defer conn.Close() //nolint:errcheck // nothing more to send
	msg, err := json.Marshal(Request{Port: &a})
	if err != nil {
		return nil, err
	}
	if err := conn.Send(msg); err != nil {
		return nil, &errs.Error{Op: "sending a request to the supervisor", Path: name, Kind: errs.ErrInterrupted, Err: err}
	}
	t, _, err := receiveWithin(ctx, conn, name)
	if err != nil {
		return nil, err
	}
	if t.Ports == nil {
		return nil, t.refusal()
	}
	return *t.Ports, nil
}

// portForwards are the port forwards that a supervisor serves.
type portForwards struct {
	h         *Supervisor
	name      string // the sandbox's name
	container *isolate.Container
	log       *egress.Journal
	refusal   error // why forwards are impossible, or nil

	mu      sync.Mutex
	open    map[uint16]*forward.Forwarder
	proxied map[uint16]bool // those of open that only a proxy has opened
}

// newPortForwards returns an empty set of forwards; one that opens none if the sandbox uses
// the host's network.
func newPortForwards(rec *catalog.Record, h *Supervisor, log *egress.Journal) *portForwards {
	in := &portForwards{
		h: h, name: rec.Name, container: h.Container, log: log, open: map[uint16]*forward.Forwarder{}, proxied: map[uint16]bool{},
	}
	if rec.Policy.Network == string(isolate.NetworkHost) {
		in.refusal = &errs.Error{
			Op: "opening a port", Path: rec.Name, Kind: errs.ErrNotSupported, Err: errors.New("the sandbox uses the host's network: its ports are the host's"),
		}
	}
	return in
}

// ports carries out a client's port request and replies with the open forwards.
func (h *Supervisor) ports(client *fdsock.Conn, a portRequest) {
	var err error
	switch {
	case a.Open != 0:
		err = h.forwards.add(a.Open, a.Host, a.Proxy)
	case a.Close != 0:
		err = h.forwards.remove(a.Close)
	}
	if err != nil {
		send(client, Reply{Refused: refusalOf(err)})
		return
	}
	list := h.forwards.list()
	send(client, Reply{Ports: &list})
}

// add opens a forward. See [Manager.OpenPort] and, for a proxy, [Manager.OpenProxyPort].
func (in *portForwards) add(port, host uint16, proxy bool) error {
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
	if proxy && len(in.proxied) >= MaxProxyPorts {
		return fail(errs.ErrNoSpace, errors.New("proxies have opened "+strconv.Itoa(MaxProxyPorts)+" ports of the sandbox already"), in.command("--close", "PORT"))
	}
	one, err := forward.Open(forward.Options{Port: port, Host: host, Dial: in.dial, Event: in.log.Put})
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

// command returns the text of a snapfs port command for the sandbox.
func (in *portForwards) command(args ...string) string {
	return strings.Join(append([]string{"snapfs port", in.name}, args...), " ")
}

func decimal(port uint16) string { return strconv.Itoa(int(port)) }

// dial connects to a port in the container. It counts as activity, so that it resumes an idle
// container, and it waits while the container is frozen for another reason.
func (in *portForwards) dial(ctx context.Context, port uint16) (net.Conn, netip.Addr, error) {
	const again = 10 * time.Millisecond
	defer in.h.deadlines.countActivity()()
	for {
		conn, at, err := in.container.Dial(ctx, port)
		if !errors.Is(err, errs.ErrBusy) {
			return conn, at, err
		}
		pause(ctx, again)
	}
}

// remove closes a forward and resets its connections.
func (in *portForwards) remove(port uint16) error {
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

// list returns the open forwards, ordered by the port inside.
func (in *portForwards) list() []Port {
	in.mu.Lock()
	defer in.mu.Unlock()
	list := []Port{}
	for port, one := range in.open {
		list = append(list, Port{Port: port, Host: one.Addrs()[0].Port(), Addrs: one.Addrs()})
	}
	slices.SortFunc(list, func(a, b Port) int { return cmp.Compare(a.Port, b.Port) })
	return list
}

// close closes all forwards. The container must not be frozen.
func (in *portForwards) close() error {
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
