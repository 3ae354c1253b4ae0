package network

// Message is a JSON message between the proxy process of a sandbox and its supervisor.
type Message struct {
	// Rules replace the current rules, as [Parse] reads them: to the proxy.
	Rules *string `json:"rules,omitempty"`
	// Names have the addresses of these numbers, see [NameAddrs], which an earlier proxy gave them, the last
	// number LastName: to the proxy, before the first rules.
	Names    map[string]int `json:"names,omitempty"`
	LastName int            `json:"last_name,omitempty"`
	// Counters are the counts of an earlier proxy, to the proxy with Names; and the current counts, from the
	// proxy each second in which they change, and at its end.
	Counters *Counters `json:"counters,omitempty"`
	// Event is a decision, and Failed the reason why the proxy could not start: from the proxy. Its first
	// message has neither if the rules are in force, and comes before any packet is read.
	Event  *Event `json:"event,omitempty"`
	Failed string `json:"failed,omitempty"`
}
