// Package stdio observes terminals, pipes and sockets that are a program's standard streams: whether input
// waits, how much is unread, and when a stream was last used.
package stdio
