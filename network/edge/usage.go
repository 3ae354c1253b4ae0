//go:build linux

package edge

import (
	"maps"
	"sync/atomic"

	"github.com/snapfs/snapfs/network"
)

// A usage is what was done by one rule, whatever its options were at the time.
type usage struct {
	bytes  atomic.Int64 // both ways
	limit  atomic.Int64 // of them, 0 for none
	opened atomic.Int64
	open   int64 // under Edge.mu
}

func (u *usage) spent() bool {
	limit := u.limit.Load()
	return limit > 0 && u.bytes.Load() >= limit
}

// usageOf is called with mu held.
func (e *Edge) usageOf(rule string, terms network.Terms) *usage {
	plain := network.Plain(rule)
	u := e.usages[plain]
	if u == nil {
		u = &usage{}
		u.limit.Store(terms.Bytes)
		e.usages[plain] = u
	}
	return u
}

// full says why a rule has no room for one more flow, or "". It is called with mu held.
func (u *usage) full(rule string, terms network.Terms) string {
	switch {
	case terms.Connections > 0 && u.open >= terms.Connections:
		return "too many connections at once by " + rule
	case u.spent():
		return spentBy(rule)
	}
	return ""
}

func spentBy(rule string) string { return spentWhy + " by " + rule }

// restore begins with what an edge before this one has counted.
func (e *Edge) restore(c network.Counters) {
	e.queries.Store(c.Queries)
	e.refusals.Store(c.Refused)
	e.opened.Store(c.Opened)
	e.in.Store(c.BytesIn)
	e.out.Store(c.BytesOut)
	e.events.lost.Store(c.EventsLost)
	for rule, was := range c.Rules {
		u := e.usageOf(rule, e.Rules().Terms(rule))
		u.bytes.Store(was.Bytes)
		u.opened.Store(was.Opened)
	}
}

// limitUsages has the limits of rules hold, for what is open too.
func (e *Edge) limitUsages(r network.Rules) {
	e.mu.Lock()
	all := maps.Clone(e.usages)
	e.mu.Unlock()
	for plain, u := range all {
		u.limit.Store(r.Terms(plain).Bytes)
	}
}

// counted is what was done by each rule. It is called with mu held.
func (e *Edge) counted() map[string]network.RuleCounters {
	rules := make(map[string]network.RuleCounters, len(e.usages))
	for plain, u := range e.usages {
		rules[plain] = network.RuleCounters{Opened: u.opened.Load(), Open: u.open, Bytes: u.bytes.Load()}
	}
	return rules
}
