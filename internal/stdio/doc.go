// Package stdio observes standard streams: whether input waits, when a terminal or a pipe was last
// used, and which file or pipe a descriptor is.
package stdio
