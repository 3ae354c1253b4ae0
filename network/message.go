package network

// A Message travels between the process at the edge of a sandbox's network and its
// starter, as JSON.
type Message struct {
	// Rules are to be in force from now on, as [Parse] reads them: to the edge.
	Rules *string `json:"rules,omitempty"`
	// Event is a decision, and Failed says why there is no edge: from it. The first
	// message has neither where the rules are in force.
	Event  *Event `json:"event,omitempty"`
	Failed string `json:"failed,omitempty"`
}
