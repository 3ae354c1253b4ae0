package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/kernel"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/network"
)

// An allowed network is one of the sandbox's own, whose other end is a process of
// its own: what a sandbox sends is read there and nowhere else. It gets the
// interface and a socket as descriptors, see edge.Serve.

// allowNet begins a policy's network that is held to rules.
const allowNet = "allow:"

// NetworkRules reads the network of a policy: "none", "host", or "allow:" with
// rules (see package network). Errors say where it makes no sense.
func NetworkRules(text string) (rules network.Rules, allowed bool, err error) {
	list, allowed := strings.CutPrefix(text, allowNet)
	switch {
	case text == string(isolate.NetworkNone), text == string(isolate.NetworkHost):
		return rules, false, nil
	case !allowed:
		return rules, false, fmt.Errorf("network %q: there are none, host, and allow:RULES", text)
	}
	rules, err = network.Parse(list)
	return rules, true, err
}

// connect says in s what network a policy has. Its text was checked.
func connect(s *isolate.Spec, text string) {
	s.Network = isolate.Network(text)
	if !strings.HasPrefix(text, allowNet) {
		return
	}
	s.Network = isolate.NetworkEdge
	s.Edge = &isolate.EdgeAddrs{
		V4: network.Inside4(), V6: network.Inside6(),
		Gateway4: network.Gateway4().Addr(), Gateway6: network.Gateway6().Addr(), MTU: network.MTU,
	}
	s.Resolver = network.Gateway4().Addr()
}

// An outlet is a sandbox's side of the process at the edge of its network.
type outlet struct {
	conn *kernel.Packet
	log  string // file, or ""
	read sync.WaitGroup

	mu      sync.Mutex
	refused []RefusedAccess
}

// A RefusedAccess is what a sandbox wanted to reach and was not allowed to.
type RefusedAccess struct {
	// Name, or else Addr, is what it asked for; Port is 0 for a question for the name.
	Name string     `json:"name,omitempty"`
	Addr netip.Addr `json:"addr,omitzero"`
	Port uint16     `json:"port,omitempty"`
	Why  string     `json:"why"`
	// Times is how often.
	Times int `json:"times"`
}

const (
	// mostRefused is how many different ones are kept to be told at the end.
	mostRefused = 100
	// netLog is the file of a sandbox's events, and netLogMost how long it gets
	// before the older half goes to netLogOld.
	netLog, netLogOld = "net.jsonl", "net.old.jsonl"
	netLogMost        = 1 << 20
)

// openOutlet starts the edge of a box's network, nil where it has none. Answers
// when the rules are in force.
func (e *Engine) openOutlet(rec *catalog.Record, box *isolate.Box) (*outlet, error) {
	tun := box.Tun()
	if tun == nil {
		return nil, nil //nolint:nilnil // another network needs none
	}
	defer tun.Close()
	fail := func(err error) error {
		return &snapshot.Error{Op: "opening the network", Path: rec.Name, Kind: snapshot.KindOf(err), Err: err}
	}
	if e.edge == nil {
		return nil, fail(errors.New("this program was opened without an edge"))
	}
	program, err := e.edge()
	if err != nil {
		return nil, err
	}
	conn, theirs, err := kernel.PacketPair()
	if err != nil {
		return nil, fail(err)
	}
	o := &outlet{conn: conn}
	if !rec.Ephemeral {
		o.log = filepath.Join(e.cat.Path(rec.Name), netLog)
	}
	_, err = run.Background(program, nil, tun, theirs)
	theirs.Close()
	if err == nil {
		err = o.allow(rec.Policy.Network)
	}
	if err == nil {
		err = o.begun()
	}
	if err != nil {
		return nil, errors.Join(fail(err), conn.Close())
	}
	o.read.Go(o.listen)
	return o, nil
}

// allow tells the edge which rules hold from now on.
func (o *outlet) allow(text string) error {
	rules := strings.TrimPrefix(text, allowNet)
	msg, err := json.Marshal(network.Message{Rules: &rules})
	if err != nil {
		return err
	}
	return o.conn.Send(msg)
}

func (o *outlet) hear() (*network.Message, error) {
	msg, files, err := o.conn.Receive()
	closeAll(files)
	if err != nil {
		return nil, err
	}
	var m network.Message
	if err := json.Unmarshal(msg, &m); err != nil {
		return nil, err
	}
	if m.Failed != "" {
		return nil, errors.New(m.Failed)
	}
	return &m, nil
}

// begun waits until the rules are in force. What the command has asked for by then
// is decided, and told first.
func (o *outlet) begun() error {
	for {
		m, err := o.hear()
		if err != nil || m.Event == nil {
			return err
		}
		o.take(m.Event)
	}
}

// listen takes the events in until the edge is gone.
func (o *outlet) listen() {
	for {
		m, err := o.hear()
		if err != nil {
			return
		}
		if m.Event != nil {
			o.take(m.Event)
		}
	}
}

// take keeps an event.
func (o *outlet) take(ev *network.Event) {
	o.note(ev)
	line, err := json.Marshal(ev)
	if err != nil || o.log == "" {
		return
	}
	f, err := os.OpenFile(o.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return // the sandbox is being removed, or the disk is full: the traffic goes on
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > netLogMost {
		_ = os.Rename(o.log, filepath.Join(filepath.Dir(o.log), netLogOld)) // else it grows
	}
	_, _ = f.Write(append(line, '\n')) // as above
}

// note counts what was refused.
func (o *outlet) note(ev *network.Event) {
	if ev.Allowed || ev.Ended {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r := RefusedAccess{Name: ev.Name, Port: ev.Port, Why: ev.Why, Times: 1}
	if ev.Name == "" {
		r.Addr = ev.Addr
	}
	if ev.Kind == network.DNS {
		r.Port = 0
	}
	for i := range o.refused {
		have := &o.refused[i]
		if have.Name == r.Name && have.Addr == r.Addr && have.Port == r.Port && have.Why == r.Why {
			have.Times++
			return
		}
	}
	if len(o.refused) < mostRefused {
		o.refused = append(o.refused, r)
	}
}

// close ends the edge and answers with what it has refused.
func (o *outlet) close() []RefusedAccess {
	if o == nil {
		return nil
	}
	o.conn.ShutdownWrite()                                          //nolint:errcheck // it may have gone by itself
	stuck := time.AfterFunc(stopping, func() { o.conn.Shutdown() }) //nolint:errcheck // likewise
	defer stuck.Stop()
	o.read.Wait()  // until it has told the last
	o.conn.Close() //nolint:errcheck // all was heard
	return o.refused
}
