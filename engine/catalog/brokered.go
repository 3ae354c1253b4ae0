package catalog

import (
	"maps"
	"slices"
	"strings"
)

// A Secret names a credential of the host that requests from a sandbox are sent with, while the sandbox's
// processes never hold it: the sandbox's proxy inserts it. Exactly one of Env, File, Command and AWS is its
// source.
type Secret struct {
	Name string `json:"name"`
	// Env is a variable of the host, File an absolute path, and Command a program with its arguments, whose output is
	// the secret.
	Env     string   `json:"env,omitempty"`
	File    string   `json:"file,omitempty"`
	Command []string `json:"command,omitempty"`
	// Identity is a file with the identity that decrypts File, which is encrypted with age, or "". Keyring is the
	// secret's place in a keyring: SERVICE/ACCOUNT in the desktop's, or [KernelKeyring] and a key's description.
	Identity string `json:"identity,omitempty"`
	Keyring  string `json:"keyring,omitempty"`
	// AWS is set for keys with which clients of AWS sign requests, which the proxy then signs anew: [AWSEnv], or
	// AWSProfile and the name of a profile in the file of credentials, or [AWSCommand] beside Command.
	AWS string `json:"aws,omitempty"`
	// Field is the path of the value in a File of JSON, its names joined by dots, or "" if the whole file is the value.
	Field string `json:"field,omitempty"`
	// Hosts are names with optional ports, as in network rules; the secret goes nowhere else. Methods and Paths
	// restrict it further.
	Hosts   []string `json:"hosts"`
	Methods []string `json:"methods,omitempty"`
	Paths   []string `json:"paths,omitempty"`
	// As is the variable inside with the placeholder.
	As string `json:"as"`
	// Body is set if the placeholder is replaced in bodies of requests, too.
	Body bool `json:"body,omitempty"`
	// Base is the server that programs inside reach by plain HTTP through the proxy, or nil.
	Base *BaseURL `json:"base,omitempty"`
}

// KernelKeyring is the beginning of a [Secret.Keyring] in the kernel.
const KernelKeyring = "kernel:"

// Reading returns the arguments with which the network proxy's program reads a secret that a person keeps encrypted
// (after network.ReadSecret), or nil for a secret with another source.
func (s *Secret) Reading() []string {
	if s.Identity != "" {
		return []string{"age", s.File, s.Identity}
	}
	if description, is := strings.CutPrefix(s.Keyring, KernelKeyring); is {
		return []string{"kernel", description}
	}
	if service, account, is := strings.Cut(s.Keyring, "/"); is {
		return []string{"keyring", service, account}
	}
	return nil
}

// The sources of a [Secret] of AWS: the variables of the host that AWS's own programs read, or, with a name after
// it, a profile in ~/.aws/credentials, or the output of the secret's Command, in the JSON form of network.AWSKeys. No
// profile has the last one.
const (
	AWSEnv     = "env"
	AWSProfile = "profile:"
	AWSCommand = "command"
)

// A BaseURL names one server of a [Secret] that a program inside reaches without TLS of its own: an address in the
// sandbox's network stands for the server, and the proxy speaks TLS to it. It is for programs that do not trust
// the sandbox's CA and take the URL of their server from a variable.
type BaseURL struct {
	// Variable is the variable inside with the URL at which the server is reached there.
	Variable string `json:"variable"`
	// Host is the server, as api.example.com:443, and Path the directory below which its requests are, as /v1, or "".
	Host string `json:"host"`
	Path string `json:"path,omitempty"`
}

// String returns the URL as a profile has it: the variable, and the server's own URL.
func (b *BaseURL) String() string {
	return b.Variable + "=https://" + strings.TrimSuffix(b.Host, ":443") + b.Path
}

// A ModelPrice is what one AI model's tokens cost, each in millionths of a currency for a million tokens.
type ModelPrice struct {
	// Model is the model's name in requests, or the beginning of names, with * at its end.
	Model string `json:"model"`
	// Input is the price of input tokens. Cached and Written are those of input tokens that the provider reads from its
	// cache and writes to it; -1 means the price of Input.
	Input   int64 `json:"input"`
	Cached  int64 `json:"cached"`
	Written int64 `json:"cache_write"`
	Output  int64 `json:"output"`
}

// A Budget bounds the requests that a sandbox sends through its proxy, in number, bytes, model tokens and
// money, over the sandbox's whole life. 0 in a field means no limit.
type Budget struct {
	Requests     int64 `json:"requests,omitempty"`
	BytesSent    int64 `json:"bytes_sent,omitempty"`
	Tokens       int64 `json:"tokens,omitempty"`
	InputTokens  int64 `json:"input_tokens,omitempty"`
	OutputTokens int64 `json:"output_tokens,omitempty"`
	// Money is in millionths of the currency of Prices, those of AI models.
	Money  int64        `json:"money_millionths,omitempty"`
	Prices []ModelPrice `json:"prices,omitempty"`
	// Hosts are servers, besides the known providers, whose requests cost tokens.
	Hosts []string `json:"hosts,omitempty"`
}

// A SentBudget is the budget of a sandbox in a stream to another machine: its limits with the prices and servers by
// which it counts, the identity of its ledger, and by ledger, that one and others, how much each has counted of which
// amount, by the amount's name in a profile.
type SentBudget struct {
	Limits Budget                      `json:"limits"`
	Ledger string                      `json:"ledger"`
	Used   map[string]map[string]int64 `json:"used"`
}

// Ceilings returns a pointer to each bound of b, by the bound's name in a profile, for reading or setting it
// by name. 0 means no limit.
func (b *Budget) Ceilings() map[string]*int64 {
	return map[string]*int64{
		"requests": &b.Requests, "bytes-sent": &b.BytesSent, "tokens": &b.Tokens, "input-tokens": &b.InputTokens, "output-tokens": &b.OutputTokens,
		"money": &b.Money,
	}
}

// Lowered returns a copy of b in which each bound that other sets lower, or that b does not set, has the value of
// other, and the names of the bounds so changed. The copy counts the tokens of the servers (Hosts) of both. It
// has the prices of other if b bounds no money. b may be nil.
func (b *Budget) Lowered(other *Budget) (low *Budget, names []string) {
	low = new(Budget)
	if b != nil {
		*low = *b
	}
	if low.Money == 0 {
		low.Prices = other.Prices
	}
	mine, theirs := low.Ceilings(), other.Ceilings()
	for _, name := range slices.Sorted(maps.Keys(mine)) {
		if bound := *theirs[name]; bound > 0 && (*mine[name] == 0 || bound < *mine[name]) {
			*mine[name] = bound
			names = append(names, name)
		}
	}
	low.Hosts = slices.Clip(low.Hosts)
	for _, host := range other.Hosts {
		if !slices.Contains(low.Hosts, host) {
			low.Hosts = append(low.Hosts, host)
		}
	}
	return low, names
}
