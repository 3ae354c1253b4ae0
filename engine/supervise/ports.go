package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/snapfs/snapfs/engine/supervise/ports"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fdsock"
)

// A Port is a port forward from the host's loopback to a sandbox's.
type Port = ports.Port

// MaxProxyPorts bounds the forwards of one sandbox that proxies have opened.
const MaxProxyPorts = ports.MaxProxied

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

// ports carries out a client's port request and replies with the open forwards.
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

// dialPort connects to a port in the container. It counts as activity, so that it resumes an idle
// container, and it waits while the container is frozen for another reason.
func (h *Supervisor) dialPort(ctx context.Context, port uint16) (net.Conn, netip.Addr, error) {
	const again = 10 * time.Millisecond
	defer h.deadlines.countActivity()()
	for {
		conn, at, err := h.Container.Dial(ctx, port)
		if !errors.Is(err, errs.ErrBusy) {
			return conn, at, err
		}
		pause(ctx, again)
	}
}
