package edge

import (
	"context"
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
		return nil, "the edge was closed"
	case len(e.flows) >= e.options.MaxConnections:
		return nil, "too many connections at once"
	case e.spent():
		return nil, spentWhy
	}
	f.ctx, f.cancel = context.WithCancel(e.ctx)
	e.flows[f] = struct{}{}
	return f, ""
}

const spentWhy = "the limit of bytes is reached"

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
	ev := t.event(f.kind)
	ev.ID, ev.Allowed = f.id, true
	f.edge.events.put(ev)
}

// fail tells that the flow was never there.
func (f *flow) fail(t target, why string) {
	f.forget()
	f.mu.Lock()
	if f.why != "" {
		why = f.why // it was cut meanwhile
	}
	f.mu.Unlock()
	ev := t.event(f.kind)
	ev.ID, ev.Why, ev.Rule = f.id, why, ""
	f.edge.refuse(ev)
}

// end tells how it ended.
func (f *flow) end() {
	f.forget()
	f.mu.Lock()
	ev := f.target.event(f.kind)
	ev.Why = f.why
	f.mu.Unlock()
	ev.ID, ev.Ended, ev.BytesIn, ev.BytesOut = f.id, true, f.in.Load(), f.out.Load()
	if ev.Why != "" {
		f.edge.refuse(ev)
		return
	}
	ev.Allowed = true
	f.edge.events.put(ev)
}

func (f *flow) forget() {
	f.cancel()
	f.edge.mu.Lock()
	delete(f.edge.flows, f)
	f.edge.mu.Unlock()
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
	_, why := t.by(r)
	if why == "" && t.name != "" && t.addr.IsValid() {
		why = f.edge.unfit(t.addr, t.port)
	}
	return why
}

// count adds n bytes, and cuts the flow where they are more than all may have.
func (f *flow) count(n int, in bool) bool {
	if in {
		f.in.Add(int64(n))
		f.edge.in.Add(int64(n))
	} else {
		f.out.Add(int64(n))
		f.edge.out.Add(int64(n))
	}
	if f.edge.spent() {
		f.cut(spentWhy)
		return false
	}
	return true
}
