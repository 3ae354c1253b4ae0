//go:build linux

package edge

import (
	"maps"
	"sync/atomic"

	"github.com/snapfs/snapfs/network"
)

// A usage counts the traffic that one network rule allowed, for the rule's limits. A change of the rule's
// options does not reset it.
type usage struct {
	bytes  atomic.Int64 // both ways
	limit  atomic.Int64 // of bytes, 0 for none
	opened atomic.Int64
	open   int64 // guarded by Edge.mu
}

func (u *usage) spent() bool {
	limit := u.limit.Load()
	return limit > 0 && u.bytes.Load() >= limit
}

// usageOf returns the traffic counters of a network rule, new ones at its first use. The caller holds e.mu.
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

// full returns the reason why a network rule, with the options terms, allows no further connection now, or
// "". The caller holds the mutex of the Edge.
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

// restore sets the traffic counters to those of an earlier proxy of the same sandbox, so that the limits of
// rules also hold across a restart of the proxy.
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

// limitUsages applies the byte limits of new network rules to the traffic counters, also for open
// connections.
func (e *Edge) limitUsages(r network.Rules) {
	e.mu.Lock()
	all := maps.Clone(e.usages)
	e.mu.Unlock()
	for plain, u := range all {
		u.limit.Store(r.Terms(plain).Bytes)
	}
}

// counted returns the traffic counters of each network rule, by the rule's text, for the supervisor. The
// caller holds e.mu.
func (e *Edge) counted() map[string]network.RuleCounters {
	rules := make(map[string]network.RuleCounters, len(e.usages))
	for plain, u := range e.usages {
		rules[plain] = network.RuleCounters{Opened: u.opened.Load(), Open: u.open, Bytes: u.bytes.Load()}
	}
	return rules
}
