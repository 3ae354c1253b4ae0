// Package egress runs the network proxy process of one sandbox and writes its journal: which names and
// addresses were allowed, and which were refused.
//
// Read [Gateway] first, then [Proxy]. The network rules are in package network, and the TCP/IP stack is in
// the proxy's own program.
package egress
