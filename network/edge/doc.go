//go:build linux

// Package edge is the proxy at the other end of a sandbox's network, which enforces the sandbox's network
// rules.
//
//	process inside ─► its kernel ─► TUN ─► proxy: a TCP/IP stack ─► sockets of this process
//
// The sandbox has one interface and one way out. The proxy resolves a name that a rule allows to an address
// that stands only for that name. A connection to that address it relays to the name, which it resolves
// itself, outside, checking the result. It refuses every other packet at once and records every decision as
// an event.
//
// # What the proxy verifies
//
//   - TLS on any port: the server name of the ClientHello, also of a second one.
//     A ClientHello without a server name is refused unless the options allow it. An encrypted one passes
//     if the rule has +ech, or if the server has no keys for one, which the proxy asks the server:
//     then it is the imitation that browsers send (GREASE).
//   - HTTP/1 on any port: the Host of every request on the connection, and the name in an absolute target
//     or in CONNECT. A request that violates the standard or is ambiguous ends the connection. After a
//     protocol upgrade that the server accepted, everything passes; only the first request may ask for one.
//   - What a lenient server could take for either must be exactly that: first bytes that look like a record of
//     TLS are refused if it has another version than 3.1 to 3.3 or no ClientHello, and a first line with HTTP/
//     in it, split at any kind of blank, if it is no request line of HTTP/1. The reason has the name that was
//     asked for, if it is in the bytes so far. A server's greeting first means another protocol.
//   - HTTP/2 without TLS is refused.
//   - QUIC is refused, unless the options or the rule (+quic) allow it; clients fall back to TCP. On other ports
//     than 443 it is recognised by the versions that servers have, and any other by the server's answer.
//   - On the ports 80, 443, 8080 and 8443 nothing else passes, but SSH by its banner. On other ports any other
//     protocol is only restricted to the name's addresses and the port. That includes TLS that begins in the
//     middle of a connection, as with databases and mail, and DTLS.
//
// The proxy does not inspect a connection that a rule allows by address or with +tcp, nor one to a service on
// this host, host.snapfs: the rule names the address or the port itself.
//
// # How refusals appear
//
// A refused connection is reset, refused datagrams and pings are "unreachable", and a name that no rule
// allows does not exist. Nothing waits for a time-out.
//
// An HTTP proxy outside is a server like any other. If a rule names it by address, its traffic is not
// inspected, so it can connect to anything. If a rule names it by name, requests through it for other names
// are refused.
//
// Read [Edge], target and inspector first. The package must not know sandboxes: it has a TUN device and
// rules.
package edge
