// Package fdsock sends messages with file descriptors over unix sockets of type SOCK_SEQPACKET
// (unix(7)), at paths of any length, and knows the process at the other end.
package fdsock
