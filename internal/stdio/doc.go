// Package stdio observes standard streams: whether input waits, when a terminal or a pipe was
// last used, and how much is unread.
package stdio
