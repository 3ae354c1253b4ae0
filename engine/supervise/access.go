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
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/network"
)

// NetworkEvents returns the accesses to the network that were allowed or refused in a sandbox, from its network log,
// oldest first. Of a long log it returns only the newest part. Only a sandbox with an allow: network has such events.
// Errors: errs.ErrNotFound.
func (sv *Manager) NetworkEvents(name string) ([]network.Event, error) {
	if _, err := sv.cat.Get(name); err != nil {
		return nil, err
	}
	events := []network.Event{}
	for _, file := range []string{egress.OlderEvents, egress.Events} {
		data, err := os.ReadFile(filepath.Join(sv.cat.Path(name), file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, errs.With("reading the network log", name, err)
		}
		for line := range bytes.Lines(data) {
			var ev network.Event
			if json.Unmarshal(line, &ev) == nil { // skip a line that a crash cut short
				events = append(events, ev)
			}
		}
	}
	return events, nil
}

// NetworkCounters returns the traffic counters of a sandbox since it was created, at most a second old while the
// sandbox runs. Forwarded ports are not counted. Errors: errs.ErrNotFound.
func (sv *Manager) NetworkCounters(name string) (network.Counters, error) {
	rec, err := sv.cat.Get(name)
	if err != nil {
		return network.Counters{}, err
	}
	return sv.egress.JournalOf(rec).Counted(rec.Supervisor != nil && proc.Alive(*rec.Supervisor)), nil
}

// NetworkOf returns the network policy of a sandbox: "none", "host", or "allow:" with rules. Errors:
// errs.ErrNotFound.
func (sv *Manager) NetworkOf(name string) (string, error) {
	rec, err := sv.cat.Get(name)
	if err != nil {
		return "", err
	}
	return rec.Policy.Network, nil
}

// AllowNetwork adds rules to the network policy of a sandbox, also for the processes that already run in it, and
// returns the whole new policy. A sandbox without a network gets one when its next command starts. Errors:
// errs.ErrNotFound; ErrBusy if processes run and have no network; ErrNotSupported if the sandbox uses the host's
// network; ErrDenied if the administrator's policy.toml allows none of the rules.
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
		return "", &errs.Error{Op: "allowing", Path: name, Kind: errs.ErrNotSupported, Err: errors.New("the sandbox uses the host's network, which has no rules")}
	}
	text := more.String()
	if !rules.Empty() {
		text = rules.String() + "," + text
	}
	text = hostfs.AllowNet + text
	if _, _, err := hostfs.NetworkRules(text); err != nil {
		return "", err
	}
	if text, err = policy.AllowedNetwork(name, h.Policy, text); err != nil {
		return "", err
	}
	reads, err := hostfs.Brokered(h.Policy)
	if err != nil {
		return "", err
	}
	if !allowed || more.HasMethods() && !reads { // its proxy cannot do that
		if err := sv.MustBeIdle(ctx, h, "allowing"); err != nil {
			return "", err
		}
	} else if _, err := sv.request(ctx, h.Record, Request{Network: text}); err != nil {
		return "", err
	}
	h.Policy.Network = text
	return text, h.Save()
}

// reconnect replaces the network rules of the running sandbox by text, a network setting that starts with "allow:",
// and sends the client that requested it the result.
func (h *Supervisor) reconnect(client *fdsock.Conn, text string) {
	err := errors.New("the sandbox runs without an allow: network")
	if h.Proxy != nil {
		err = h.Proxy.Allow(text)
	}
	if err != nil {
		send(client, Reply{Refused: refusalOf(&errs.Error{Op: "allowing", Kind: errs.ErrNotSupported, Err: err})})
		return
	}
	send(client, Reply{})
}
