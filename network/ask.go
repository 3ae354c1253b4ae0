package network

import (
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Bounds of the questions of one sandbox: the time for which a connection waits where nobody sets another, the
// shortest and the longest, how many destinations wait at once, and how many connections to them. The kernel
// inside gives a connection up after about two minutes, so a longer wait would be in vain.
const (
	AskTime      = time.Minute
	MinAskTime   = time.Second
	MaxAskTime   = 2 * time.Minute
	MaxQuestions = 16
	MaxHeld      = 64
)

// Asking is a message from the supervisor to the proxy of a sandbox. It makes the proxy hold a connection to a
// destination that no rule allows until a person decides, instead of refusing it at once.
type Asking struct {
	// Wait is how long a destination waits at most; then its connections are refused.
	Wait time.Duration `json:"wait"`
	// Within are the network rules of the site's policy, which no answer exceeds; "" means any destination. The proxy
	// refuses a destination outside of them at once.
	Within string `json:"within,omitempty"`
}

// A Question is a destination to which connections of a sandbox wait until a person decides.
type Question struct {
	// Rule is the network rule that allows this destination and no other.
	Rule string `json:"rule"`
	// Connections is how many connections wait, and Until when they are refused.
	Connections int       `json:"connections"`
	Until       time.Time `json:"until"`
}

// An Answer is a person's decision about destinations that wait. The supervisor sends it to the proxy. An answer
// that allows them for longer is a change of the rules instead.
type Answer struct {
	// Rules are network rules: the answer is about the waiting destinations that they allow.
	Rules string `json:"rules"`
	// Allow lets the waiting connections through; otherwise they are refused.
	Allow bool `json:"allow,omitempty"`
	// Always, of a refusal, is for all further connections to destinations that Rules allow, too. They are refused
	// without a question.
	Always bool `json:"always,omitempty"`
}

// AskableName reports whether a person may be asked about connections to the host name: it has a dot, a rule can
// have it, and it is neither that of a service (_http._tcp) nor one of the reverse zone (arpa).
func AskableName(name string) bool {
	if !strings.Contains(name, ".") || strings.HasPrefix(name, "_") || strings.HasSuffix(name, ".arpa") || !ValidName(name) {
		return false
	}
	_, bad := Read(name + ":1")
	return bad == nil
}

// QuestionAbout returns the network rule that allows exactly one destination, the host name, or the address of to if
// name is "", with the port of to. ok is false if no person may be asked about it: a name that is not
// [AskableName], a special address (see [Special]) or one of the sandbox's own networks, or a resolver.
func QuestionAbout(name string, to netip.AddrPort) (rule string, ok bool) {
	if name != "" {
		return name + ":" + strconv.Itoa(int(to.Port())), to.Port() > 0 && AskableName(name)
	}
	const resolver = 53
	addr := to.Addr().Unmap()
	_, inside := NameNumber(addr)
	_, _, special := Special(addr)
	return netip.AddrPortFrom(addr, to.Port()).String(), addr.Zone() == "" && !inside && !special && to.Port() > 0 && to.Port() != resolver
}
