package egress

import (
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
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/stdio"
	"github.com/snapfs/snapfs/internal/tun"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/network"
)

// The network of an allow: policy is a tun interface in the sandbox, whose other end a proxy process
// reads. The process gets the interface and a socket as descriptors, see edge.Serve.

// A Proxy controls the network proxy process of one running sandbox and restarts it if it ends by itself.
// [Gateway.OpenProxy] makes it.
type Proxy struct {
	program  []string
	log      *Journal
	self     string    // the sandbox's host name
	brokered *brokered // or nil
	asking   *asking
	read     sync.WaitGroup
	closing  chan struct{} // closed by Close

	life  sync.Mutex // held to start a process; guards the fields up to mu
	tun   *os.File   // nil after Close
	conn  *fdsock.Conn
	proc  *os.Process
	up    bool   // the rules are in force
	rules string // of the policy

	mu       sync.Mutex // guards the fields below
	refused  []RefusedAccess
	counters network.Counters
	names    nameCache
	since    time.Time // Forget dropped older refusals
}

// A RefusedAccess is a network destination that a sandbox was not allowed to reach, or could not reach, for
// the report at the end of a command.
type RefusedAccess struct {
	// Name, or else Addr, is the requested destination; Port is 0 for a name lookup.
	Name string     `json:"name,omitempty"`
	Addr netip.Addr `json:"addr,omitzero"`
	Port uint16     `json:"port,omitempty"`
	Why  string     `json:"why"`
	// Failed is set if the access was allowed but the destination did not answer.
	Failed bool `json:"failed,omitempty"`
	// Times is the number of attempts.
	Times int `json:"times"`
}

// maxRefused is how many different refused destinations a Proxy collects for the report at the end of a command.
// Further ones are not in the report.
const maxRefused = 100

// OpenProxy starts the proxy process for the network of a container. It returns when the network rules are in
// force, or when the container's command has ended. It returns nil if the sandbox's policy needs no proxy;
// otherwise the caller closes the Proxy.
func (eg *Gateway) OpenProxy(rec *catalog.Record, container *isolate.Container, log *Journal) (*Proxy, error) {
	tun := container.Tun()
	if tun == nil {
		return nil, nil //nolint:nilnil // the policy needs no proxy
	}
	fail := func(err error) error {
		return errs.With("opening the network", rec.Name, err)
	}
	if eg.Program == nil {
		return nil, errors.Join(fail(errors.New("this program has no proxy command")), tun.Close())
	}
	program, err := eg.Program()
	if err != nil {
		return nil, errors.Join(err, tun.Close())
	}
	o := &Proxy{
		program: program, log: log, self: strings.ToLower(hostfs.Hostname(rec.Name)), closing: make(chan struct{}), tun: tun, rules: rec.Policy.Network,
	}
	if o.brokered, err = eg.newBrokered(rec); err != nil {
		return nil, errors.Join(fail(err), tun.Close())
	}
	if o.asking, err = newAsking(rec, eg.Catalog.Path(rec.Name)); err == nil {
		err = o.serveQuestions()
	}
	if err != nil {
		return nil, errors.Join(fail(err), tun.Close())
	}
	o.counters = log.Counted(false)
	if err := o.start(); err != nil {
		o.stopQuestions()
		return nil, errors.Join(fail(err), tun.Close())
	}
	started := make(chan error, 1)
	o.read.Go(func() {
		err := o.awaitRules()
		started <- err
		if err == nil || o.restart(0) {
			o.supervise()
		}
	})
	select {
	case err = <-started:
	case <-container.Idle():
	}
	if err != nil {
		o.Close()
		return nil, fail(err)
	}
	return o, nil
}

// start starts a process that proxies the sandbox's network, and sends it the state of the process before, if
// any, and the network rules.
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
	proc, err := run.BackgroundIn(o.brokered.environ(), o.program, nil, o.tun, theirs)
	theirs.Close()
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	o.conn, o.proc, o.up = conn, proc, false
	if err := errors.Join(o.sendState(), o.sendBroker(), o.sendRules(), o.sendDenied()); err != nil && !fdsock.HungUp(err) { // if it has ended, it reports why
		o.reap()
		return err
	}
	return nil
}

// reap kills the proxy process and closes the connection to it. This precedes a new process, since only one
// may read the sandbox's network interface. The caller holds o.life.
func (o *Proxy) reap() {
	_ = o.proc.Kill()    // it has usually ended
	_, _ = o.proc.Wait() // its status does not matter
	_ = o.conn.Close()   // all messages are received
	o.conn, o.proc, o.up = nil, nil, false
	o.asking.setWaiting(nil)
}

// sendState sends a new network proxy process the traffic counters of earlier ones, and the numbers of
// resolved names, from which the proxy makes the addresses that it gives to names.
func (o *Proxy) sendState() error {
	o.mu.Lock()
	m := network.Message{Counters: &o.counters, Names: o.names.numbers, LastName: o.names.last, Asking: o.asking.options}
	msg, err := exactjson.Encode(m)
	o.mu.Unlock()
	if err != nil {
		return err
	}
	return o.conn.Send(msg)
}

// Allow replaces the network rules of the running sandbox by those in text. They apply in the present network
// proxy process and in each that is started later.
func (o *Proxy) Allow(text string) error {
	o.life.Lock()
	defer o.life.Unlock()
	o.rules = text
	if o.conn == nil {
		return nil // the next process gets them
	}
	err := o.sendRules()
	if fdsock.HungUp(err) {
		return nil // likewise
	}
	return err
}

// sendRules sends the sandbox's network rules, which say which destinations its programs may reach, to the
// proxy process. The caller holds o.life.
func (o *Proxy) sendRules() error {
	rules := strings.TrimPrefix(o.rules, hostfs.AllowNet)
	msg, err := exactjson.Encode(network.Message{Rules: &rules})
	if err != nil {
		return err
	}
	return o.conn.Send(msg)
}

// receiveMessage waits for the next message of a sandbox's network proxy process. If the process reports a
// failure in it, that is the error, as is a failure of conn.
func receiveMessage(conn *fdsock.Conn) (*network.Message, error) {
	msg, files, err := conn.Receive()
	fdsock.CloseAll(files)
	if err != nil {
		return nil, err
	}
	var m network.Message
	if err := exactjson.Decode(msg, &m); err != nil {
		return nil, err
	}
	if m.Failed != "" {
		return nil, errors.New(m.Failed)
	}
	return &m, nil
}

// startTimeout is how long a sandbox's network proxy process may take from its start to its first message.
// After that its start has failed.
const startTimeout = 30 * time.Second

// awaitRules waits until a started network proxy process reports that the sandbox's network rules are in
// force. After an error the process does not exist any more.
func (o *Proxy) awaitRules() error {
	conn := o.conn                                                    // from now on only this goroutine changes it
	stuck := time.AfterFunc(startTimeout, func() { conn.Shutdown() }) //nolint:errcheck // it may have ended
	defer stuck.Stop()
	var err error
	for ready := false; err == nil && !ready; {
		ready, err = conn.Await(startTimeout)
	}
	o.life.Lock()
	defer o.life.Unlock()
	if err == nil {
		var first *network.Message
		if first, err = receiveMessage(conn); err == nil {
			err = o.publish(first.Public)
		}
	}
	if err != nil {
		o.reap()
		return fmt.Errorf("%s ended before it served: %w", o.program[0], err)
	}
	o.up = true
	return nil
}

// supervise handles the messages of the sandbox's network proxy process and restarts the process whenever it
// ends, until Close. It runs in its own goroutine.
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

// restart starts a new proxy process after the last one ended by itself. If that lived for more than a second
// it does so at once, else with a growing delay. It returns false if the Proxy is closed meanwhile.
func (o *Proxy) restart(lived time.Duration) bool {
	const soon, late = 100 * time.Millisecond, time.Second
	select {
	case <-o.closing:
		return false
	default:
	}
	o.handle(&network.Message{Events: []network.Event{{
		Time: time.Now(), Kind: network.Edge, Ended: true, Why: "the proxy process ended by itself, and every connection with it; snapfs restarts it",
	}}})
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

// handle processes a message of the sandbox's network proxy process: it logs the network event and saves the
// traffic counters, if the message has them.
func (o *Proxy) handle(m *network.Message) {
	if m.Counters != nil {
		o.mu.Lock()
		o.counters = *m.Counters
		o.mu.Unlock()
		o.log.count(*m.Counters)
	}
	if m.Questions != nil {
		o.asking.setWaiting(*m.Questions)
	}
	for i := range m.Events {
		o.note(&m.Events[i])
	}
	o.log.Put(m.Events...)
}

// note adds a network access that was refused or failed to o.refused, for the report at the end of a command.
// For an allowed name lookup it adds the number that the proxy gave to the name to o.names.
func (o *Proxy) note(ev *network.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ev.Allowed && ev.Kind == network.DNS {
		o.names.note(ev)
	}
	if ev.Allowed && !ev.Failed || ev.Asked || ev.Time.Before(o.since) || ev.Kind == network.Edge || ev.Kind == network.DNS && ev.Name == o.self {
		return // programs look their own host name up and cope without
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

// Forget drops the refused accesses collected so far, so that the report at the end of a command leaves them
// out. o may be nil.
func (o *Proxy) Forget() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.since, o.refused = time.Now(), nil
}

// Close ends the sandbox's network proxy process and returns the accesses that it refused. o may be nil.
func (o *Proxy) Close() []RefusedAccess {
	if o == nil {
		return nil
	}
	pending := o.lastPackets()
	close(o.closing)
	o.life.Lock()
	_ = tun.Persist(o.tun) // otherwise the kernel removes the interface later
	o.tun.Close()
	o.tun = nil
	switch {
	case o.conn == nil:
	case pending || o.mayHaveRead():
		o.conn.ShutdownWrite() //nolint:errcheck // it may have ended
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
	o.read.Wait() // until the last message
	o.stopQuestions()
	return o.refused
}

// closeTimeout is how long a sandbox's network proxy process that is to end may take to send its last
// messages before snapfs kills it.
const closeTimeout = 5 * time.Second

// mayHaveRead reports whether the proxy process may have read packets of the sandbox: it sends its first
// message before it reads any. The caller holds o.life.
func (o *Proxy) mayHaveRead() bool {
	ready, err := o.conn.Await(0)
	return o.up || ready || err != nil
}

// lastPackets waits up to a second until the proxy process has read all packets of the sandbox, whose command
// has ended. Even a connection of a command that waited for no answer is then logged. It reports whether
// there were any packets.
func (o *Proxy) lastPackets() (any bool) {
	const patience = time.Second
	for end := time.Now().Add(patience); stdio.Readable(o.tun) && time.Now().Before(end); any = true {
		time.Sleep(time.Millisecond)
	}
	return any
}

// nameCache holds the number of each resolved name; the proxy gives a name an address made of its number.
// After a restart the next proxy process gets these, so that an address stands for the same name there.
type nameCache struct {
	numbers map[string]int
	size    int // of the names, in bytes
	last    int
}

// maxNameBytes is how many bytes of resolved names a nameCache holds, because all must fit into one message
// to the next proxy process.
const maxNameBytes = 64 << 10

// note stores the number that the proxy gave to a name, from ev, an allowed lookup of the name. It stores
// none beyond maxNameBytes.
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
