package hostfs

import (
	"fmt"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/network"
)

// AllowNet is the prefix of a sandbox's network setting that has network rules, as in "allow:example.org".
const AllowNet = "allow:"

// NetworkRules parses text, the network setting of a sandbox's policy: "none", "host", or "allow:" with
// network rules (see package network). allowed is true for the last.
func NetworkRules(text string) (rules network.Rules, allowed bool, err error) {
	list, allowed := strings.CutPrefix(text, AllowNet)
	switch {
	case text == string(isolate.NetworkNone), text == string(isolate.NetworkHost):
		return rules, false, nil
	case !allowed:
		return rules, false, fmt.Errorf("network %q: must be none, host, or allow:RULES", text)
	}
	rules, err = network.Parse(list)
	return rules, true, err
}

// connect sets in s, the spec from which a container is started, which network the container has. text is the
// network setting of the sandbox's policy, and must be valid.
func connect(s *isolate.Spec, text string) {
	s.Network = isolate.Network(text)
	if !strings.HasPrefix(text, AllowNet) {
		return
	}
	s.Network = isolate.NetworkEdge
	s.Edge = &isolate.EdgeAddrs{
		V4: network.Inside4(), V6: network.Inside6(),
		Gateway4: network.Gateway4().Addr(), Gateway6: network.Gateway6().Addr(), MTU: network.MTU,
	}
	s.Resolver = network.Gateway4().Addr()
}

// Brokered reports whether the network proxy of a sandbox with this policy reads the requests of programs,
// for which it needs a CA: for secrets, a budget, labelled files, or rules with methods. Errors: errs.ErrInvalid if the
// network setting cannot be parsed or has no proxy.
func Brokered(p catalog.Policy) (bool, error) {
	if len(p.Secrets) == 0 && p.Budget == nil && !p.Data.Labelled() && !strings.Contains(p.Network, " ") {
		return false, nil
	}
	rules, allowed, err := NetworkRules(p.Network)
	if err != nil {
		return false, err
	}
	refuse := func(what string) error {
		return &errs.Error{
			Op: "starting a sandbox", Kind: errs.ErrInvalid, Err: fmt.Errorf("%s a network of rules (allow:RULES), and the network is %s", what, p.Network), Hints: []string{"snapfs run --net allow:NAME …"},
		}
	}
	switch {
	case allowed:
		return len(p.Secrets) > 0 || p.Budget != nil || p.Data.Labelled() || rules.HasMethods(), nil
	case len(p.Secrets) > 0:
		return false, refuse("secrets need")
	case p.Budget != nil && p.Network == string(isolate.NetworkHost):
		return false, refuse("a budget needs")
	case p.Data.Labelled() && p.Network == string(isolate.NetworkHost):
		return false, refuse("labels (secret and private in [data]) need no network, or")
	}
	return false, nil
}
