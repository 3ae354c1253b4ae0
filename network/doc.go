// Package network says what a sandbox may reach: the [Rules] a person writes, and what is
// told of each decision made by them.
//
// A sandbox that may reach something has a network namespace of its own with one TUN device in
// it, at the addresses of this package. The other end of that TUN is the edge, which answers
// questions for names and relays connections: package network/edge. It stands on a whole
// TCP/IP stack, whose package-level work costs every start of a program more than half a
// millisecond. So this package is the light half: it knows no stack, and whoever reads a profile
// or shows a record imports it alone; the edge is for a process of its own.
//
// # What holds
//
// An address inside stands for a name, and only the edge gives it, for names that a rule
// allows; nothing else answers, unless a rule names an address, or the host's own /etc/hosts has it for an allowed name. The name is held to through TLS's
// server name and HTTP's Host (see package network/edge for how far), and resolved outside,
// where an answer that leads to this host or its neighbours is refused unless a rule names that
// address.
//
// # What does not
//
// Who may speak to a name may tell it anything: rules say where to, not what. Of two names that
// one server serves under one certificate, a server that ignores the difference between server name and Host may serve
// either; with HTTPS the edge sees the first only.
package network
