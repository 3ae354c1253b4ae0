//go:build linux

package edge

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/snapfs/snapfs/network"
)

// A flow is one connection of the sandbox, or the datagrams between two ports, from the decision that allowed
// it to its end.
type flow struct {
	edge    *Edge
	id      uint64
	kind    network.Kind
	ctx     context.Context // done when the flow is cut
	cancel  context.CancelFunc
	in, out atomic.Int64
	usage   *usage // of the rule that allowed the flow
	small   bool   // many flows are open: this one uses less memory

	mu     sync.Mutex // guards the fields below
	target target
	why    string // why the flow was cut
	shut   []func()
}

// afterDone calls f in a goroutine when ctx is done, unless stop is called before. stop returns true if it
// prevented the call.
func afterDone(ctx context.Context, f func()) (stop func() bool) { return context.AfterFunc(ctx, f) }

// open adds a connection (kind TCP) or datagram flow (UDP) to the destination t to those that are open. If a
// limit does not allow another one, it returns the reason why.
func (e *Edge) open(kind network.Kind, t target) (f *flow, why string) {
	f = &flow{edge: e, id: e.ids.Add(1), kind: kind, target: t}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return nil, closedWhy
	case len(e.flows) >= e.options.MaxConnections:
		return nil, "too many connections at once"
	case e.spent():
		return nil, spentWhy
	}
	f.usage = e.usageOf(t.rule, t.terms)
	if why := f.usage.full(t.rule, t.terms); why != "" {
		return nil, why
	}
	f.usage.open++
	f.small = len(e.flows) >= maxFast
	f.ctx, f.cancel = context.WithCancel(e.ctx)
	e.flows[f] = struct{}{}
	return f, ""
}

// Reasons, in events of the sandbox's network log, why the proxy cut or refused a connection.
const (
	spentWhy  = "the limit of bytes is reached"
	closedWhy = "the proxy was closed" // the sandbox's last command has ended
)

// spent reports whether the sandbox has used up its limit of network bytes, so that the proxy allows no
// further connection and cuts the open ones.
func (e *Edge) spent() bool {
	return e.options.MaxBytes > 0 && e.in.Load()+e.out.Load() >= e.options.MaxBytes
}

// begin notes that a flow, a connection of the sandbox through the proxy, has reached its destination t: it
// counts the flow and passes an event to the supervisor.
func (f *flow) begin(t target) {
	f.mu.Lock()
	f.target = t
	f.mu.Unlock()
	f.edge.opened.Add(1)
	f.usage.opened.Add(1)
	ev := t.event(f.kind)
	ev.ID, ev.Allowed = f.id, true
	f.edge.events.put(ev)
}

// fail ends a flow, a connection of the sandbox through the proxy, that could not reach its destination t
// because of err, and passes an event to the supervisor.
func (f *flow) fail(t target, err error) {
	f.forget()
	f.mu.Lock()
	cut := f.why
	f.mu.Unlock()
	ev := t.event(f.kind)
	ev.ID, ev.Why = f.id, cmp.Or(cut, unreached(err))
	if cut != "" || errors.Is(err, errUnfit) {
		ev.Rule = ""
		f.edge.refuse(ev)
		return
	}
	ev.Allowed, ev.Failed = true, true
	f.edge.events.put(ev)
}

// end removes a flow, a connection of the sandbox through the proxy, from the open ones when it is over, and
// passes an event with its bytes to the supervisor.
func (f *flow) end() {
	f.forget()
	f.mu.Lock()
	ev := f.target.event(f.kind)
	ev.Why = f.why
	f.mu.Unlock()
	ev.ID, ev.Ended, ev.BytesIn, ev.BytesOut = f.id, true, f.in.Load(), f.out.Load()
	if ev.Why != "" && ev.Why != closedWhy {
		f.edge.refuse(ev)
		return
	}
	ev.Allowed = true // a flow that was open to the end was not refused
	f.edge.events.put(ev)
}

func (f *flow) forget() {
	f.cancel()
	f.edge.mu.Lock()
	defer f.edge.mu.Unlock()
	if _, there := f.edge.flows[f]; there {
		delete(f.edge.flows, f)
		f.usage.open--
	}
}

// onCut registers shut, which closes one end of a connection through the proxy, to be called when the proxy
// cuts the connection. It calls shut at once if that has happened already.
func (f *flow) onCut(shut func()) {
	f.mu.Lock()
	cut := f.why != ""
	if !cut {
		f.shut = append(f.shut, shut)
	}
	f.mu.Unlock()
	if cut {
		shut()
	}
}

// cut ends a connection of the sandbox through the proxy by closing both ends. why is the reason for the
// event. Only the first call has an effect.
func (f *flow) cut(why string) {
	f.mu.Lock()
	if f.why != "" {
		f.mu.Unlock()
		return
	}
	f.why = why
	shut := f.shut
	f.mu.Unlock()
	f.cancel()
	for _, one := range shut {
		one()
	}
}

// recheck returns the reason why the new network rules r forbid an open connection of the sandbox, or "". If
// r allows the connection, its rule and options are updated.
func (f *flow) recheck(r network.Rules) string {
	f.mu.Lock()
	t := f.target
	f.mu.Unlock()
	if t.once {
		return "" // a person has allowed it to its end
	}
	now, why := t.matchRules(r)
	switch {
	case why != "":
		return why
	case f.kind == network.UDP && t.port == quicPort && !f.edge.quic(now):
		return quicWhy
	case t.name != "" && t.name != network.HostName && t.addr.IsValid():
		why = f.edge.unfit(t.addr, t.port)
	}
	f.mu.Lock()
	f.target.rule, f.target.terms = now.rule, now.terms
	f.mu.Unlock()
	return why
}

// terms returns the options of the network rule that allows this connection of the sandbox. A change of the
// rules may change them.
func (f *flow) terms() network.Terms {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.target.terms
}

// count adds n bytes, which went into the sandbox if in is set, to the counters of a connection. When the
// limit of all connections or of the connection's rule is reached, it cuts the connection and returns false.
func (f *flow) count(n int, in bool) bool {
	if in {
		f.in.Add(int64(n))
		f.edge.in.Add(int64(n))
	} else {
		f.out.Add(int64(n))
		f.edge.out.Add(int64(n))
	}
	f.usage.bytes.Add(int64(n))
	switch {
	case f.edge.spent():
		f.cut(spentWhy)
	case f.usage.spent():
		f.mu.Lock()
		rule := f.target.rule
		f.mu.Unlock()
		f.cut(spentBy(rule))
	default:
		return true
	}
	return false
}
