package network

import (
	"net/netip"
	"time"
)

// A Kind is what a decision was about.
type Kind string

// What is decided.
const (
	DNS  Kind = "dns"  // a question for a name
	TCP  Kind = "tcp"  // a connection
	UDP  Kind = "udp"  // datagrams between two ports
	ICMP Kind = "icmp" // an echo request, which is always refused
	Edge Kind = "edge" // the edge itself, which ended and was started again
	Port Kind = "port" // a connection from the host to a port inside, see package inlet
)

// An Event tells of one decision, or of the end of what was allowed by one. As JSON it is a line of the
// record.
type Event struct {
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`
	// ID is the same in all events of one connection, and 0 where there is none.
	ID uint64 `json:"id,omitzero"`
	// Name is what the sandbox asked for, or what the address it connects to
	// stands for; empty where it used an address.
	Name string `json:"name,omitzero"`
	// Addr is the address outside, once it is known; of an allowed question the one that
	// stands for the name inside.
	Addr netip.Addr `json:"addr,omitzero"`
	Port uint16     `json:"port,omitzero"`
	// Allowed with Rule, which is what allowed it; or refused, with Why. A connection that
	// was allowed at first and then said what no rule allows is refused when it has Ended. One that was
	// still open when the sandbox's last command ended is allowed, and has a Why too.
	Allowed bool   `json:"allowed"`
	Rule    string `json:"rule,omitzero"`
	Why     string `json:"why,omitzero"`
	// Failed says that what was Allowed could not be reached: Why says how.
	Failed bool `json:"failed,omitzero"`
	// Ended says that a connection is over. BytesIn went into the sandbox, BytesOut out of it.
	Ended    bool  `json:"ended,omitzero"`
	BytesIn  int64 `json:"bytes_in,omitzero"`
	BytesOut int64 `json:"bytes_out,omitzero"`
}

// Counters is what an edge has done in the sandbox's life. Bytes are of payload.
type Counters struct {
	Queries  int64 `json:"queries"`  // questions for names
	Refused  int64 `json:"refused"`  // decisions against, of every kind
	Opened   int64 `json:"opened"`   // connections and datagram flows that were allowed
	Open     int64 `json:"open"`     // those that are there now
	BytesIn  int64 `json:"bytes_in"` // into the sandbox
	BytesOut int64 `json:"bytes_out"`
	// EventsLost is how many events were dropped because nobody took them in time.
	EventsLost int64 `json:"events_lost"`
	// Rules is what was done by each, by how it is written without options.
	Rules map[string]RuleCounters `json:"rules,omitempty"`
}

// RuleCounters is what was done by one rule.
type RuleCounters struct {
	Opened int64 `json:"opened"`
	Open   int64 `json:"open"`
	Bytes  int64 `json:"bytes"` // both ways
}
