// Package network defines which destinations a sandbox may reach: the [Rules] that a person writes, and the
// [Event] that records each decision.
//
// A sandbox with network access has a network namespace of its own with one TUN device in it, at the addresses
// of this package. At the other end of the TUN is the proxy, which resolves names and relays connections:
// package network/edge. The proxy links a whole TCP/IP stack, whose package-level work costs every start of a
// program more than half a millisecond. So this package is the light half, without the stack, for programs that
// read profiles or show records; the proxy runs in a process of its own.
//
// # Guarantees
//
// An address inside stands for a name. Only the proxy gives such addresses, and only for names that a rule
// allows. Other addresses are refused, unless a rule names them or the host's /etc/hosts maps an allowed name
// to them. The proxy compares the name with TLS's server name and HTTP's Host (see package network/edge for the
// limits). It resolves the name outside, and refuses results that are this host or its neighbours unless a rule
// names that address.
//
// # Limits
//
// Rules choose the destination and not the content: a sandbox may send any data to an allowed name. If one
// server serves two names under one certificate and ignores a difference between server name and Host, it may
// serve either; with HTTPS the proxy sees only the server name.
//
// Read [Rules] and [Event] first. The package must know neither sandboxes nor the proxy's network stack.
package network
