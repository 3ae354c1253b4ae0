package network

import (
	"github.com/snapfs/snapfs/network/budget"
	"github.com/snapfs/snapfs/network/placeholder"
)

// ReadSecret is the first argument of the proxy's program for a process that only reads one secret where a person keeps
// it encrypted, and prints it on its standard output. [github.com/snapfs/snapfs/network/source] has the arguments after
// it. On an error it prints one line on its standard error and exits with 1.
const ReadSecret = "secret"

// A BrokerConfig is a message from the supervisor to the proxy of a sandbox. It makes the proxy read the
// sandbox's HTTP requests, to insert secrets (credentials) into them and to count them in a budget. The
// values of the secrets follow as file descriptors, in the same order.
type BrokerConfig struct {
	// Sandbox is the sandbox's name, for messages.
	Sandbox string         `json:"sandbox"`
	Secrets []BrokerSecret `json:"secrets,omitempty"`
	// Labels is set if the descriptor after those of the secrets has the fingerprints of labelled files, in
	// the form that fingerprint.Load reads. The proxy then reads every request, and sends none with their content.
	Labels bool `json:"labels,omitempty"`
	// Ledger is the directory of the sandbox's budget, or "" for none. Metered are servers, besides those of the known
	// providers, whose requests cost tokens, as do those to the names below them.
	Ledger  string   `json:"ledger,omitempty"`
	Metered []string `json:"metered,omitempty"`
	// Prices are those of AI models, for a budget of money.
	Prices []budget.Price `json:"prices,omitempty"`
	// Pauses is set if the sandbox is paused when its budget is spent. The client of a refused request may then try
	// again, after a higher limit has resumed the sandbox.
	Pauses bool `json:"pauses,omitempty"`
}

// A BrokerSecret describes a secret (credential), without its value, for the proxy of a sandbox: into which
// requests, by host, method and path, the proxy may insert it.
type BrokerSecret struct {
	Name string `json:"name"`
	// Placeholder stands for the secret inside; "" makes the proxy choose one.
	Placeholder string `json:"placeholder,omitempty"`
	// Hosts are network rules without methods; the secret goes to these names and ports only, over TLS.
	Hosts []string `json:"hosts"`
	// Methods and Paths restrict it further; empty, they do not.
	Methods []string `json:"methods,omitempty"`
	Paths   []string `json:"paths,omitempty"`
	// Body is set if the placeholder is replaced in bodies, too.
	Body bool `json:"body,omitempty"`
	// AWS is set if the value is the JSON form of [AWSKeys]. The proxy signs with them each request that was signed
	// with the placeholder, whose access key id is placeholder.KeyID(Placeholder).
	AWS bool `json:"aws,omitempty"`
	// Base is a server of the secret that programs inside reach by plain HTTP, or nil.
	Base *BrokerBase `json:"base,omitempty"`
}

// AWSKeys are the keys of one identity of AWS. The supervisor sends them to the proxy as the value of a
// [BrokerSecret], in JSON.
type AWSKeys struct {
	ID    string `json:"id"`
	Key   string `json:"key"`
	Token string `json:"token,omitempty"` // of temporary keys
}

// A BrokerBase is a base URL: plain HTTP to the port At of the proxy's own addresses ([Gateway4], [Gateway6])
// leads to one server, to which the proxy speaks TLS. It is for programs that do not trust the sandbox's CA.
type BrokerBase struct {
	At uint16 `json:"at"`
	// Name and Port are the server's, and Path is the directory below which requests must be, as /v1, or "".
	Name string `json:"name"`
	Port uint16 `json:"port"`
	Path string `json:"path,omitempty"`
	// Auth is the kind of the header Authorization, with the secret, that the proxy adds to a request without one:
	// [AuthBearer], [AuthToken], or "" for none. It is for clients whose settings have no credential for this address.
	Auth string `json:"auth,omitempty"`
}

// The values of [BrokerBase.Auth].
const (
	// AuthBearer adds the secret as a bearer token.
	AuthBearer = "bearer"
	// AuthToken adds the secret as the password of the user __token__, as servers of Python packages take it.
	AuthToken = "token"
)

// BaseAuth returns the [BrokerBase.Auth] of the base URL that programs read from variable: that of package servers, whose
// clients have a token in settings for the server's own address only. It is "" for other programs.
func BaseAuth(variable string) string {
	switch variable {
	case "npm_config_registry":
		return AuthBearer
	case "PIP_INDEX_URL", "UV_DEFAULT_INDEX":
		return AuthToken
	}
	return ""
}

// firstBase is the port of the first base URL of a sandbox at its proxy's addresses. Further ones have the
// ports after it.
const firstBase = 8001

// BasePort returns the port of the base URL number i, from 0, of a sandbox at its proxy's addresses.
func BasePort(i int) uint16 { return firstBase + uint16(i) }

// A BrokerPublic is the reply of a sandbox's proxy to a [BrokerConfig]. It has the data that the supervisor
// and the sandbox need for requests that the proxy reads, such as a certificate to trust, and no secret.
type BrokerPublic struct {
	// CA is the certificate of the sandbox's CA, in PEM.
	CA string `json:"ca"`
	// Placeholders are those of the secrets, by name.
	Placeholders map[string]string `json:"placeholders,omitempty"`
	// Prints recognise the secrets in files.
	Prints []placeholder.Print `json:"prints,omitempty"`
}
