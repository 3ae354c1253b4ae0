// Package fdsock sends messages with file descriptors over unix sockets of type SOCK_SEQPACKET
// (unix(7)). Paths may have any length, and the process at the other end can be identified.
package fdsock
