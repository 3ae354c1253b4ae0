package egress

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/network"
)

const (
	// Events is the name of the file in a sandbox's directory with its network events. When it is larger than
	// maxLogBytes it is renamed to OlderEvents, which it replaces.
	Events = "net.jsonl"
	// OlderEvents is the name of the file in a sandbox's directory with the network events before those in
	// Events.
	OlderEvents = "net.old.jsonl"
	maxLogBytes = 1 << 20
	// countersFile is the name of the file in a sandbox's directory with its network traffic counters.
	countersFile = "net.json"
)

// A Journal stores the network events and traffic counters of one sandbox in its directory.
type Journal struct {
	mu   sync.Mutex
	path string // of the log

	// OnRefusal is called with the host of the first refusal of each destination. It must not block; it may be nil.
	OnRefusal func(host string)
	// OnAsked is called for each question about a destination to which a connection waits, with the rule that would
	// allow it. It must not block; it may be nil.
	OnAsked func(rule string)
	// OnSpent is called for each request for which the budget of the sandbox is spent, with the limit and the
	// reason. It must not block. If it is nil, the first such request for each limit is an event.
	OnSpent func(spent network.SpentLimit, why string)

	events    *events.Log
	name, id  string                // of the sandbox
	announced map[announcement]bool // the decisions that are in events
	spent     *network.Event        // the last request for which the budget was spent, or nil
	watcher   func(limit, why string)
}

// An announcement is a network decision, a destination that was allowed or refused, that is already in the
// event log. The log gets each decision once in the life of a container (of refused HTTP requests, once for
// each reason), and at most maxAnnounced of them.
type announcement struct {
	host    string
	port    uint16
	allowed bool
	why     string // of a refused HTTP request
}

const maxAnnounced = 1000

// JournalOf returns the journal of a sandbox's network events, such as refused connections. It opens no file.
func (eg *Gateway) JournalOf(rec *catalog.Record) *Journal {
	return &Journal{
		path: filepath.Join(eg.Catalog.Path(rec.Name), Events), events: eg.Events, name: rec.Name, id: rec.ID, announced: map[announcement]bool{},
	}
}

// Put appends network events to the sandbox's journal file. If that fails, as on a full disk, it drops the
// events: traffic does not depend on the journal.
func (j *Journal) Put(all ...network.Event) {
	if len(all) == 0 {
		return
	}
	var lines bytes.Buffer
	write := json.NewEncoder(&lines)
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, ev := range all {
		if ev.Spent != nil {
			j.putSpent(ev)
		}
		if write.Encode(ev) == nil {
			j.announce(ev)
		}
	}
	f, err := os.OpenFile(j.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > maxLogBytes {
		_ = os.Rename(j.path, filepath.Join(filepath.Dir(j.path), OlderEvents)) // if it fails, the log grows
	}
	_, _ = f.Write(lines.Bytes()) // best effort
}

// putSpent reports ev, a request for which the sandbox's budget is spent, to the watcher and to OnSpent, which pauses
// the sandbox and announces that. Without OnSpent, putSpent writes the first such request for each limit as an event to
// the log of the state directory. The caller holds j.mu.
func (j *Journal) putSpent(ev network.Event) {
	j.spent = &ev
	if j.watcher != nil {
		j.watcher(ev.Spent.Limit, ev.Why)
	}
	if j.OnSpent != nil {
		j.OnSpent(*ev.Spent, ev.Why)
		return
	}
	a := announcement{why: "spent " + ev.Spent.Limit}
	if j.announced[a] {
		return
	}
	j.announced[a] = true
	j.events.Append(events.Event{Type: events.LimitReached, Subject: j.name, SandboxID: j.id, Data: events.Data{Limit: "budget", Value: ev.Spent.Limit, Reason: ev.Why}})
}

// WatchSpent calls seen for each request for which the sandbox's budget is spent, with the name of the limit and the
// reason, and at once for the last earlier one. seen must not block. WatchSpent(nil) ends the watch: when it returns,
// no call of seen is running.
func (j *Journal) WatchSpent(seen func(limit, why string)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.watcher = seen
	if seen != nil && j.spent != nil {
		seen(j.spent.Spent.Limit, j.spent.Why)
	}
}

// announce appends the first decision of the network proxy on each destination to the event log of the state
// directory: a refused name or connection, or an allowed connection. The caller holds j.mu.
func (j *Journal) announce(ev network.Event) {
	if ev.Kind == network.Edge || ev.Kind == network.Port || ev.Allowed && (ev.Ended || ev.Kind == network.DNS) {
		return
	}
	host := ev.Name
	if host == "" {
		host = ev.Addr.String()
	}
	if ev.Asked {
		j.announceQuestion(ev, host)
		return
	}
	a := announcement{host: host, port: ev.Port, allowed: ev.Allowed}
	if ev.Kind == network.HTTP && !ev.Allowed {
		a.why = ev.Why
	}
	if j.announced[a] || len(j.announced) == maxAnnounced {
		return
	}
	j.announced[a] = true
	kind := events.NetworkRefused
	if ev.Allowed {
		kind = events.NetworkAllowed
	} else if j.OnRefusal != nil {
		j.OnRefusal(host)
	}
	j.events.Append(events.Event{Type: kind, Subject: j.name, SandboxID: j.id, Data: events.Data{Host: host, Port: int(ev.Port), Reason: ev.Why}})
}

// announceQuestion appends the event that a connection to host waits for a person to the event log of the state
// directory. It does so each time; the proxy bounds the number of questions. The caller holds j.mu.
func (j *Journal) announceQuestion(ev network.Event, host string) {
	reason := "no rule allows it"
	if rule, ok := network.QuestionAbout(ev.Name, netip.AddrPortFrom(ev.Addr, ev.Port)); ok {
		reason += "; snapfs net " + j.name + " --allow " + errs.Quoted(rule)
		if j.OnAsked != nil {
			j.OnAsked(rule)
		}
	}
	j.events.Append(events.Event{Type: events.NetworkAsked, Subject: j.name, SandboxID: j.id, Data: events.Data{Host: host, Port: int(ev.Port), Reason: reason}})
}

// count saves the sandbox's network traffic counters in its directory. If that fails, the previous ones stay
// on disk.
func (j *Journal) count(c network.Counters) {
	text, err := json.Marshal(c)
	if err != nil {
		return
	}
	path := filepath.Join(filepath.Dir(j.path), countersFile)
	if os.WriteFile(path+".new", text, 0o600) == nil {
		_ = os.Rename(path+".new", path) // best effort
	}
}

// Counted returns the sandbox's network traffic counters that were saved last. runs says whether the sandbox
// runs; if not, the numbers of open connections are 0.
func (j *Journal) Counted(runs bool) (c network.Counters) {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(j.path), countersFile))
	if err != nil || json.Unmarshal(text, &c) != nil {
		return network.Counters{} // nothing counted yet
	}
	if runs {
		return c
	}
	c.Open = 0
	for rule, r := range c.Rules {
		r.Open = 0
		c.Rules[rule] = r
	}
	return c
}
