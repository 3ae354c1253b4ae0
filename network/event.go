package network

import (
	"net/netip"
	"time"
)

// A Kind is a kind of network access of a sandbox on which the proxy decides, such as a DNS query or a
// connection. Each [Event] has one.
type Kind string

// The kinds of network access of a sandbox that an [Event] can be about.
const (
	DNS  Kind = "dns"  // a query for a name
	TCP  Kind = "tcp"  // a connection
	UDP  Kind = "udp"  // datagrams between two ports
	HTTP Kind = "http" // a request that the proxy has read, see package broker
	ICMP Kind = "icmp" // an echo request, which is always refused
	Edge Kind = "edge" // the proxy itself, which ended and was restarted
	Port Kind = "port" // a connection from the host to a port inside, see package forward
)

// An Event says how the proxy of a sandbox decided on one network access, or that an allowed connection has
// ended. As JSON it is a line of the sandbox's network log.
type Event struct {
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`
	// ID is the same in all events of one connection, and 0 in other events.
	ID uint64 `json:"id,omitzero"`
	// Name is the name that the sandbox queried, or for which its destination address stands;
	// empty if it used an address.
	Name string `json:"name,omitzero"`
	// Addr is the address outside, once known. For an allowed query it is the address that
	// stands for the name inside.
	Addr netip.Addr `json:"addr,omitzero"`
	Port uint16     `json:"port,omitzero"`
	// Method and Path are those of an HTTP request, the path without the query. Secrets are the names of the secrets
	// that were put in.
	Method  string   `json:"method,omitzero"`
	Path    string   `json:"path,omitzero"`
	Secrets []string `json:"secrets,omitempty"`
	// Allowed is set if Rule allowed the access; otherwise Why is the reason of the refusal. A
	// connection that later sent forbidden data is refused in its Ended event. One that was
	// open when the sandbox's last command ended is allowed, and has a Why too.
	Allowed bool   `json:"allowed"`
	Rule    string `json:"rule,omitzero"`
	Why     string `json:"why,omitzero"`
	// Asked is set if the connection waits for a person, who may allow it. A later event is the decision.
	Asked bool `json:"asked,omitzero"`
	// Spent is the limit of the sandbox's budget that has no room for the request, also when all open requests are
	// over, or nil. So a sandbox without a higher limit cannot go on.
	Spent *SpentLimit `json:"spent,omitempty"`
	// Failed is set if the allowed destination could not be reached; Why is the reason.
	Failed bool `json:"failed,omitzero"`
	// Ended is set if the connection is over. BytesIn went into the sandbox, BytesOut out of
	// it.
	Ended    bool  `json:"ended,omitzero"`
	BytesIn  int64 `json:"bytes_in,omitzero"`
	BytesOut int64 `json:"bytes_out,omitzero"`
}

// A SpentLimit is a limit of a sandbox's budget, by its name in a profile, such as tokens, that has no room
// for a request. The [Event] of the refusal has it.
type SpentLimit struct {
	Limit string `json:"limit"`
	Value int64  `json:"value"`
}

// Counters are the totals of a sandbox's network traffic over its life: connections, refusals and bytes of
// payload.
type Counters struct {
	Queries  int64 `json:"queries"`  // queries for names
	Refused  int64 `json:"refused"`  // refusals of every kind
	Opened   int64 `json:"opened"`   // allowed connections and datagram flows
	Open     int64 `json:"open"`     // those open now
	BytesIn  int64 `json:"bytes_in"` // into the sandbox
	BytesOut int64 `json:"bytes_out"`
	// EventsLost is the number of dropped events, because Options.Event was too slow.
	EventsLost int64 `json:"events_lost"`
	// Rules are the counters of each rule, by its text without options.
	Rules map[string]RuleCounters `json:"rules,omitempty"`
}

// RuleCounters are the totals of a sandbox's traffic that one network rule allowed.
type RuleCounters struct {
	Opened int64 `json:"opened"`
	Open   int64 `json:"open"`
	Bytes  int64 `json:"bytes"` // both ways
}
