package serve

import "time"

// An E2BConfig configures a server that speaks the protocol of E2B. It is made from the flags of the person
// who starts the server.
type E2BConfig struct {
	Rules Rules `json:"rules"`
	// KeyFile is a file with the API key that clients must have. Without one the server accepts every key, and listens on
	// loopback only.
	KeyFile string `json:"key_file,omitempty"`
	// Hosts are names by which clients reach the server, besides localhost.
	Hosts []string `json:"hosts,omitempty"`
	// Templates are profiles by the name of their template: absolute paths.
	Templates map[string]string `json:"templates,omitempty"`
	// MaxTimeout is the longest time-out that a client may set; 0 means 24 hours.
	MaxTimeout time.Duration `json:"max_timeout_ns,omitempty"`
}
