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

// A flow is one connection, or the datagrams between two ports, from the decision that allowed it to
// its end.
type flow struct {
	edge    *Edge
	id      uint64
	kind    network.Kind
	ctx     context.Context // done when the flow is cut
	cancel  context.CancelFunc
	in, out atomic.Int64
	usage   *usage // of the rule that allowed it
	small   bool   // many are open: it has to do with less memory

	mu     sync.Mutex // guards what follows
	target target
	why    string // what cut it
	shut   []func()
}

// afterDone calls f when ctx is done, unless stop was called before.
func afterDone(ctx context.Context, f func()) (stop func() bool) { return context.AfterFunc(ctx, f) }

// open counts a flow to t, or says why there is no room.
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
	f.small = len(e.flows) >= roomy
	f.ctx, f.cancel = context.WithCancel(e.ctx)
	e.flows[f] = struct{}{}
	return f, ""
}

// Why a flow was cut, or never was.
const (
	spentWhy  = "the limit of bytes is reached"
	closedWhy = "the edge was closed" // the sandbox's last command has ended
)

// spent says that the limit of bytes is reached.
func (e *Edge) spent() bool {
	return e.options.MaxBytes > 0 && e.in.Load()+e.out.Load() >= e.options.MaxBytes
}

// begin tells that the flow has reached t.
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

// fail tells that the flow was never there.
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

// end tells how it ended.
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
	ev.Allowed = true // what was open to the end was not refused
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

// onCut has shut called when the flow is cut, at once where it was.
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

// cut ends a flow, because of why. Only the first counts.
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

// still says what forbids the flow by other rules, or "".
func (f *flow) still(r network.Rules) string {
	f.mu.Lock()
	t := f.target
	f.mu.Unlock()
	now, why := t.by(r)
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

// terms are what the options of its rule say now.
func (f *flow) terms() network.Terms {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.target.terms
}

// count adds n bytes, and cuts the flow where they are more than all may have, or those of its rule.
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
