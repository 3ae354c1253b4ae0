package network

// A Message travels between the process at the edge of a sandbox's network and its
// starter, as JSON.
type Message struct {
	// Rules are to be in force from now on, as [Parse] reads them: to the edge.
	Rules *string `json:"rules,omitempty"`
	// Names have the addresses of these numbers, see [NameAddrs], since an edge before this one
	// gave them, the last number LastName: to the edge, before the first rules.
	Names    map[string]int `json:"names,omitempty"`
	LastName int            `json:"last_name,omitempty"`
	// Counters are what was counted before, to the edge with Names; and from it each second
	// in which something was done, and at its end.
	Counters *Counters `json:"counters,omitempty"`
	// Event is a decision, and Failed says why there is no edge: from it. The first
	// message has none of them where the rules are in force, and comes before any packet is read.
	Event  *Event `json:"event,omitempty"`
	Failed string `json:"failed,omitempty"`
}
