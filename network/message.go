package network

// A Message is a JSON message between the network proxy process of a sandbox and its supervisor. Network
// rules and descriptions of secrets go to the proxy; decisions and counters come back.
type Message struct {
	// Rules, to the proxy, replace the current rules; [Parse] reads them.
	Rules *string `json:"rules,omitempty"`
	// Names, to the proxy before the first rules, maps each name to the number of its
	// addresses (see [NameAddrs]) from an earlier proxy; LastName is the last number given.
	Names    map[string]int `json:"names,omitempty"`
	LastName int            `json:"last_name,omitempty"`
	// Counters, to the proxy with Names, are the counts of an earlier proxy. From the proxy
	// they are the current counts, each second in which they change, and at its end.
	Counters *Counters `json:"counters,omitempty"`
	// Asking, to the proxy before the first rules, makes it hold connections to unknown destinations until a person
	// decides. Answer, to the proxy, is a decision; Questions, from the proxy, are all that wait, whenever they change.
	Asking    *Asking     `json:"asking,omitempty"`
	Answer    *Answer     `json:"answer,omitempty"`
	Questions *[]Question `json:"questions,omitempty"`
	// Broker, to the proxy before the first rules, makes it read requests. The proxy's first message answers with
	// Public.
	Broker *BrokerConfig `json:"broker,omitempty"`
	Public *BrokerPublic `json:"public,omitempty"`
	// Events, from the proxy, are decisions; Failed is the reason why the proxy could not
	// start. The proxy's first message has no Events: it means that the rules are in force, and
	// comes before any packet is read.
	Events []Event `json:"events,omitempty"`
	Failed string  `json:"failed,omitempty"`
}
