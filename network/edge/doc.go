//go:build linux

// Package edge is the other end of a sandbox's network, and holds it to rules.
//
//	process inside ─► its kernel ─► TUN ─► edge: a TCP/IP stack ─► sockets of this process
//
// The sandbox has one interface and one way out. A name that a rule allows is answered with an
// address that stands for it and for nothing else; a connection to that address is one to
// the name, which the edge resolves itself, outside, and checks where it leads. Every other packet
// is refused at once, and every decision is an event.
//
// # What is held to the name
//
//   - TLS on any port: the server name of the ClientHello, also of a second one.
//     None at all is refused unless the options say otherwise. An encrypted one passes
//     where the rule says +ech, and to a server that has no keys for one, as the edge finds out by asking
//     it: the imitation that browsers send (GREASE).
//   - HTTP/1 on any port: the Host of every request on the connection, with the target of one that has a
//     name, and of CONNECT. What is not HTTP as the standard has it, or could
//     be read in two ways, ends the connection. After a switch of protocols
//     that the server agreed to, everything passes; only the first request may ask for one.
//   - HTTP/2 without TLS is refused.
//   - QUIC is refused, unless the options or the rule (+quic) say otherwise; clients fall back to TCP.
//   - Anything else is held to the name's addresses and the port. That includes TLS that begins in the middle of a
//     connection, as databases and mail have it, and DTLS.
//
// A connection that a rule allows by its address is not read at all: the address is what was allowed. Nor is one to a
// service on this host, host.snapfs: a port of its loopback is what was allowed.
//
// # What is answered
//
// A refused connection sees a reset, refused datagrams and pings "unreachable",
// a name that no rule allows does not exist. Nothing waits for a time-out.
//
// A proxy is a server like any other. One that a rule names by its address is not read, and so leads wherever it
// likes; one that is allowed by its name alone is held to that name, and what it is asked for others is refused.
package edge
