package supervise

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/egress"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/network"
)

// NetworkEvents are the decisions at the edge of a sandbox's network, the oldest
// first; of very many the last. A sandbox without such a network has none. Errors:
// errs.ErrNotFound.
func (sv *Manager) NetworkEvents(name string) ([]network.Event, error) {
	if _, err := sv.cat.Get(name); err != nil {
		return nil, err
	}
	events := []network.Event{}
	for _, file := range []string{egress.NetLogOld, egress.NetLog} {
		data, err := os.ReadFile(filepath.Join(sv.cat.Path(name), file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, &errs.Error{Op: "reading what was decided", Path: name, Kind: errs.KindOf(err), Err: err}
		}
		for line := range bytes.Lines(data) {
			var ev network.Event
			if json.Unmarshal(line, &ev) == nil { // a line that a crash cut short is none
				events = append(events, ev)
			}
		}
	}
	return events, nil
}

// NetworkCounters is what a sandbox's network has done in its life, not older than a second while
// something runs. Ports are not counted. Errors: errs.ErrNotFound.
func (sv *Manager) NetworkCounters(name string) (network.Counters, error) {
	rec, err := sv.cat.Get(name)
	if err != nil {
		return network.Counters{}, err
	}
	return sv.egress.JournalOf(rec).Counted(rec.Supervisor != nil && proc.Alive(*rec.Supervisor)), nil
}

// NetworkOf is the network of a sandbox: "none", "host", or "allow:" with rules.
// Errors: errs.ErrNotFound.
func (sv *Manager) NetworkOf(name string) (string, error) {
	rec, err := sv.cat.Get(name)
	if err != nil {
		return "", err
	}
	return rec.Policy.Network, nil
}

// AllowNetwork adds rules to those of a sandbox, for what runs in it too, and
// answers with all of them. A sandbox without a network gets one when its next
// command starts. Errors: errs.ErrNotFound, ErrBusy (something runs that has no
// network), ErrNotSupported (it has the host's).
func (sv *Manager) AllowNetwork(ctx context.Context, name string, more network.Rules) (string, error) {
	h, err := sv.Hold(ctx, name, "allowing")
	if err != nil {
		return "", err
	}
	defer h.Release()
	rules, allowed, err := hostfs.NetworkRules(h.Policy.Network)
	if err != nil {
		return "", err
	}
	if h.Policy.Network == "host" {
		return "", &errs.Error{Op: "allowing", Path: name, Kind: errs.ErrNotSupported, Err: errors.New("it has the host's network, which is held to no rules")}
	}
	text := more.String()
	if !rules.Empty() {
		text = rules.String() + "," + text
	}
	text = hostfs.AllowNet + text
	if _, _, err := hostfs.NetworkRules(text); err != nil {
		return "", err
	}
	if !allowed {
		if err := sv.MustBeIdle(ctx, h, "allowing"); err != nil {
			return "", err
		}
	} else if _, err := sv.request(ctx, h.Record, Request{Network: text}); err != nil {
		return "", err
	}
	h.Policy.Network = text
	return text, h.Save()
}

// reconnect changes the rules of what runs, for a client.
func (h *Supervisor) reconnect(client *fdsock.Conn, text string) {
	err := errors.New("it runs without a network that is held to rules")
	if h.Proxy != nil {
		err = h.Proxy.Allow(text)
	}
	if err != nil {
		send(client, reply{Refused: refusalOf(&errs.Error{Op: "allowing", Kind: errs.ErrNotSupported, Err: err})})
		return
	}
	send(client, reply{})
}
