package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/stdio"
	"github.com/snapfs/snapfs/internal/tun"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/network"
)

// An allowed network is one of the sandbox's own, whose other end is a process of
// its own: what a sandbox sends is read there and nowhere else. It gets the
// interface and a socket as descriptors, see edge.Serve.

// A Proxy is a sandbox's side of the process at the edge of its network. It starts
// another where that one ends by itself.
type Proxy struct {
	program []string
	log     *Journal
	self    string // the sandbox's host name
	read    sync.WaitGroup
	closing chan struct{} // closed when close begins

	life  sync.Mutex // held to start an edge, and guards what follows
	tun   *os.File   // nil once it is closed
	conn  *fdsock.Conn
	proc  *os.Process
	up    bool   // its rules are in force
	rules string // of the rules

	mu       sync.Mutex // guards what follows
	refused  []RefusedAccess
	counters network.Counters
	names    nameCache
	since    time.Time // what was refused before is not told
}

// A RefusedAccess is what a sandbox wanted to reach and was not allowed to, or could not.
type RefusedAccess struct {
	// Name, or else Addr, is what it asked for; Port is 0 for a question for the name.
	Name string     `json:"name,omitempty"`
	Addr netip.Addr `json:"addr,omitzero"`
	Port uint16     `json:"port,omitempty"`
	Why  string     `json:"why"`
	// Failed says that it was allowed, and could not be reached.
	Failed bool `json:"failed,omitempty"`
	// Times is how often.
	Times int `json:"times"`
}

// mostRefused is how many different ones are kept to be told at the end.
const maxRefused = 100

// OpenProxy starts the edge of a box's network, nil where it has none. Answers
// when the rules are in force, or the box's command has ended before.
func (eg *Gateway) OpenProxy(rec *catalog.Record, box *isolate.Container, log *Journal) (*Proxy, error) {
	tun := box.Tun()
	if tun == nil {
		return nil, nil //nolint:nilnil // another network needs none
	}
	fail := func(err error) error {
		return &errs.Error{Op: "opening the network", Path: rec.Name, Kind: errs.KindOf(err), Err: err}
	}
	if eg.program == nil {
		return nil, errors.Join(fail(errors.New("this program was opened without an edge")), tun.Close())
	}
	program, err := eg.program()
	if err != nil {
		return nil, errors.Join(err, tun.Close())
	}
	o := &Proxy{
		program: program, log: log, self: strings.ToLower(hostfs.Hostname(rec.Name)), closing: make(chan struct{}), tun: tun, rules: rec.Policy.Network,
	}
	o.counters = log.Counted(false)
	if err := o.start(); err != nil {
		return nil, errors.Join(fail(err), tun.Close())
	}
	begun := make(chan error, 1)
	o.read.Go(func() {
		err := o.awaitRules()
		begun <- err
		if err == nil || o.restart(0) {
			o.supervise()
		}
	})
	select {
	case err = <-begun:
	case <-box.Idle():
	}
	if err != nil {
		o.Close()
		return nil, fail(err)
	}
	return o, nil
}

// start starts an edge, which is told all that it has to know.
func (o *Proxy) start() error {
	o.life.Lock()
	defer o.life.Unlock()
	if o.tun == nil {
		return errors.New("the sandbox has ended")
	}
	conn, theirs, err := fdsock.Pair()
	if err != nil {
		return err
	}
	proc, err := run.Background(o.program, nil, o.tun, theirs)
	theirs.Close()
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	o.conn, o.proc, o.up = conn, proc, false
	if err := errors.Join(o.sendState(), o.sendRules()); err != nil && !fdsock.HungUp(err) { // why it has gone it says itself
		o.reap()
		return err
	}
	return nil
}

// ended lets go of an edge that is of no use any more: no two may read one interface.
// It is called with life held.
func (o *Proxy) reap() {
	_ = o.proc.Kill()    // it has ended, mostly
	_, _ = o.proc.Wait() // nobody asks how
	_ = o.conn.Close()   // all was heard
	o.conn, o.proc, o.up = nil, nil, false
}

// handOver tells a new edge what those before it have done.
func (o *Proxy) sendState() error {
	o.mu.Lock()
	m := network.Message{Counters: &o.counters, Names: o.names.numbers, LastName: o.names.last}
	msg, err := json.Marshal(m)
	o.mu.Unlock()
	if err != nil {
		return err
	}
	return o.conn.Send(msg)
}

// Allow tells the edge which rules hold from now on.
func (o *Proxy) Allow(text string) error {
	o.life.Lock()
	defer o.life.Unlock()
	o.rules = text
	if o.conn == nil {
		return nil // the next one hears it
	}
	err := o.sendRules()
	if fdsock.HungUp(err) {
		return nil // likewise
	}
	return err
}

// allowed tells the edge the rules. It is called with life held.
func (o *Proxy) sendRules() error {
	rules := strings.TrimPrefix(o.rules, hostfs.AllowNet)
	msg, err := json.Marshal(network.Message{Rules: &rules})
	if err != nil {
		return err
	}
	return o.conn.Send(msg)
}

func receiveMessage(conn *fdsock.Conn) (*network.Message, error) {
	msg, files, err := conn.Receive()
	fdsock.CloseAll(files)
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

// startTimeout is how long a proxy may take to answer after its start.
const startTimeout = 30 * time.Second

// awaitRules waits until the rules of an edge that was started are in force. After an error
// there is no edge.
func (o *Proxy) awaitRules() error {
	conn := o.conn                                                    // which only this goroutine changes from now on
	stuck := time.AfterFunc(startTimeout, func() { conn.Shutdown() }) //nolint:errcheck // it may have gone
	defer stuck.Stop()
	var err error
	for said := false; err == nil && !said; {
		said, err = conn.Await(startTimeout)
	}
	o.life.Lock()
	defer o.life.Unlock()
	if err == nil {
		_, err = receiveMessage(conn)
	}
	if err != nil {
		o.reap()
		return fmt.Errorf("%s ended before it served: %w", o.program[0], err)
	}
	o.up = true
	return nil
}

// supervise takes in what edges say, one after the other, until the outlet is closed.
func (o *Proxy) supervise() {
	for {
		began := time.Now()
		for {
			m, err := receiveMessage(o.conn)
			if err != nil {
				break
			}
			o.handle(m)
		}
		o.life.Lock()
		o.reap()
		o.life.Unlock()
		if !o.restart(time.Since(began)) {
			return
		}
	}
}

// restart starts an edge in the place of one that ended by itself, at once where that had
// lived for a while. It gives up when the outlet is closed.
func (o *Proxy) restart(lived time.Duration) bool {
	const soon, late = 100 * time.Millisecond, time.Second
	select {
	case <-o.closing:
		return false
	default:
	}
	o.handle(&network.Message{Event: &network.Event{
		Time: time.Now(), Kind: network.Edge, Ended: true, Why: "it ended by itself, and with it every connection; it is started again",
	}})
	wait := soon
	if lived > late {
		wait = 0
	}
	for {
		select {
		case <-o.closing:
			return false
		case <-time.After(wait):
		}
		if o.start() == nil && o.awaitRules() == nil {
			return true
		}
		wait = min(max(2*wait, soon), late)
	}
}

// handle keeps what an edge has said.
func (o *Proxy) handle(m *network.Message) {
	if m.Counters != nil {
		o.mu.Lock()
		o.counters = *m.Counters
		o.mu.Unlock()
		o.log.count(*m.Counters)
	}
	if m.Event != nil {
		o.note(m.Event)
		o.log.Put(*m.Event)
	}
}

// note counts what was refused, and keeps which name has which address.
func (o *Proxy) note(ev *network.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ev.Allowed && ev.Kind == network.DNS {
		o.names.note(ev)
	}
	if ev.Allowed && !ev.Failed || ev.Time.Before(o.since) || ev.Kind == network.Edge || ev.Kind == network.DNS && ev.Name == o.self {
		return // programs ask for their own host, and do without
	}
	r := RefusedAccess{Name: ev.Name, Port: ev.Port, Why: ev.Why, Failed: ev.Failed, Times: 1}
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
	if len(o.refused) < maxRefused {
		o.refused = append(o.refused, r)
	}
}

// Forget leaves what was refused by now out of what is told at the end.
func (o *Proxy) Forget() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.since, o.refused = time.Now(), nil
}

// Close ends the edge and answers with what it has refused.
func (o *Proxy) Close() []RefusedAccess {
	if o == nil {
		return nil
	}
	wanted := o.lastPackets()
	close(o.closing)
	o.life.Lock()
	_ = tun.Persist(o.tun) // the kernel takes its time otherwise, and that is all
	o.tun.Close()
	o.tun = nil
	switch {
	case o.conn == nil:
	case wanted || o.mayHaveRead():
		o.conn.ShutdownWrite() //nolint:errcheck // it may have gone by itself
	default:
		o.proc.Kill() //nolint:errcheck // likewise
	}
	o.life.Unlock()
	stuck := time.AfterFunc(closeTimeout, func() {
		o.life.Lock()
		defer o.life.Unlock()
		if o.conn != nil {
			o.conn.Shutdown() //nolint:errcheck // likewise
		}
	})
	defer stuck.Stop()
	o.read.Wait() // until it has told the last
	return o.refused
}

// lingering is how long an edge may take to tell the last before it is killed.
const closeTimeout = 5 * time.Second

// reads: an edge may have read packets. It has said that it is up before the first. It
// is called with life held.
func (o *Proxy) mayHaveRead() bool {
	said, err := o.conn.Await(0)
	return o.up || said || err != nil
}

// lastPackets waits, for a moment, until an edge has seen what the sandbox has sent, so
// that it is told even of a command that did not wait for an answer. It reports whether
// there was anything.
func (o *Proxy) lastPackets() (any bool) {
	const patience = time.Second
	for end := time.Now().Add(patience); stdio.Readable(o.tun) && time.Now().Before(end); any = true {
		time.Sleep(time.Millisecond)
	}
	return any
}

// nameCache are the addresses that stand for names, so that they do in the next edge.
type nameCache struct {
	numbers map[string]int
	size    int // of the names, in bytes
	last    int
}

// namesMost bounds what a next edge is told in one message.
const maxNameBytes = 64 << 10

func (n *nameCache) note(ev *network.Event) {
	num, _ := network.NameNumber(ev.Addr)
	n.last = max(n.last, num)
	if _, known := n.numbers[ev.Name]; known || num == 0 || n.size > maxNameBytes {
		return
	}
	if n.numbers == nil {
		n.numbers = map[string]int{}
	}
	n.numbers[ev.Name] = num
	const each = 16 // quotes, a colon, the number
	n.size += len(ev.Name) + each
}
