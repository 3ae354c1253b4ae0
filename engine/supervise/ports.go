package supervise

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/snapfs/snapfs/engine/supervise/ports"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/poll"
)

// A Port is a port forward: connections to a port of the host's loopback reach a port inside the sandbox.
type Port = ports.Port

// MaxProxyPorts is how many ports of one sandbox may be forwarded at the request of proxies, whose clients choose the
// ports, so that these cannot use up the host's ports.
const MaxProxyPorts = ports.MaxProxied

// OpenPort forwards the port host of the host's loopback to the port of a sandbox. If host is 0, it picks a free
// port, or returns an existing forward. Errors: errs.ErrNotFound (no such sandbox, or it is not running),
// ErrNotSupported (it uses the host's network), ErrExists (forwarded from another host port), ErrBusy (another
// program uses the host port, or the supervisor does not reply), ErrDenied (the host port is privileged).
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

// OpenProxyPort does the same as OpenPort, with a free port of the host, for a proxy whose clients choose ports. It
// opens at most MaxProxyPorts forwards of a sandbox; those do not limit OpenPort. Errors: also errs.ErrNoSpace (there
// are as many).
func (sv *Manager) OpenProxyPort(ctx context.Context, name string, port uint16) (Port, error) {
	return sv.openPort(ctx, name, portRequest{Open: port, Proxy: true})
}

// ClosePort ends the forward to the port of a sandbox and resets its connections. Errors: errs.ErrNotFound.
func (sv *Manager) ClosePort(ctx context.Context, name string, port uint16) error {
	_, err := sv.requestPorts(ctx, name, portRequest{Close: port})
	return err
}

// Ports returns the port forwards of a sandbox, ordered by the port inside; none if it is not running. Errors:
// errs.ErrNotFound.
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

// portRequest is a client's request to a supervisor to forward the sandbox's port Open, or to end the forward of the
// port Close. With neither set it lists the forwards.
type portRequest struct {
	Open  uint16 `json:"open,omitempty"`
	Host  uint16 `json:"host,omitempty"`
	Close uint16 `json:"close,omitempty"`
	// Proxy says that a proxy opens the forward, see MaxProxyPorts. An older supervisor sets no bound.
	Proxy bool `json:"proxy,omitempty"`
}

// requestPorts sends a request about port forwards to a sandbox's supervisor and returns the forwards that are open
// afterwards. Errors: also errs.ErrNotFound if the sandbox is not running.
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

// sendPortRequest sends the request a on conn, closes conn, and returns the port forwards that are open then.
func sendPortRequest(ctx context.Context, conn *fdsock.Conn, name string, a portRequest) ([]Port, error) {
	defer conn.Close() //nolint:errcheck // nothing more to send
	msg, err := exactjson.Encode(Request{Port: &a})
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

// ports opens or closes a port forward at the request of a client, and replies with all open forwards.
func (h *Supervisor) ports(client *fdsock.Conn, a portRequest) {
	var err error
	switch {
	case a.Open != 0:
		err = h.forwards.Add(a.Open, a.Host, a.Proxy)
	case a.Close != 0:
		err = h.forwards.Remove(a.Close)
	}
	if err != nil {
		send(client, Reply{Refused: refusalOf(err)})
		return
	}
	list := h.forwards.List()
	send(client, Reply{Ports: &list})
}

// dialPort connects to a port inside the sandbox, for a port forward. That counts as activity, so it resumes a
// sandbox that was paused for being idle. While the sandbox is frozen for another reason, dialPort waits.
func (h *Supervisor) dialPort(ctx context.Context, port uint16) (net.Conn, netip.Addr, error) {
	const again = 10 * time.Millisecond
	defer h.deadlines.countActivity()()
	for {
		conn, at, err := h.Container.Dial(ctx, port)
		if !errors.Is(err, errs.ErrBusy) {
			return conn, at, err
		}
		poll.Sleep(ctx, again)
	}
}
