package egress

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/network"
)

// baseOf returns the base URL of s, the secret number i of a sandbox, for the network proxy: the port at which a
// program inside reaches the secret's server by plain HTTP. It is nil if the secret has none.
func baseOf(i int, s *catalog.Secret) *network.BrokerBase {
	if s.Base == nil {
		return nil
	}
	name, text, _ := strings.Cut(s.Base.Host, ":")
	port, _ := strconv.ParseUint(text, 10, 16) // package policy has checked it
	return &network.BrokerBase{At: network.BasePort(i), Name: name, Port: uint16(port), Path: s.Base.Path, Auth: network.BaseAuth(s.Base.Variable)}
}

// pipIndex is the variable from which pip reads the URL of its package server.
const pipIndex = "PIP_INDEX_URL"

// baseVariables returns the variables, as NAME=VALUE, from which programs inside read the URL at, in the proxy's form,
// of base, the base URL of a secret. It returns none if both are nil. pip takes plain HTTP only from a host that a
// variable names as trusted.
func baseVariables(at *network.BrokerBase, base *catalog.BaseURL) []string {
	if at == nil {
		return nil
	}
	gateway := network.Gateway4().Addr()
	set := []string{base.Variable + "=http://" + netip.AddrPortFrom(gateway, at.At).String() + at.Path}
	if base.Variable == pipIndex {
		set = append(set, "PIP_TRUSTED_HOST="+gateway.String())
	}
	return set
}
