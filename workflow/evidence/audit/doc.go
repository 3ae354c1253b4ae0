// Package audit stores everything done to a sandbox as an append-only log: one record a line, in canonical
// JSON (RFC 8785), each with the SHA-256 digest of the line before it.
//
// [Log.Create] creates the log of a sandbox and [Log.Append] adds a record, from any number of processes.
// Arguments and variables of commands are in no record: [Log.Redact] puts digests in their place, and stores
// the salt of each digest in a file beside the log. A log is one or more files, its segments: [Log.Room] closes a
// full one. [Log.Lines] reads a whole log, and [Log.Verified] verifies it too. [Tree] is the log as a
// Merkle tree, of which package statement signs the root.
//
// The package knows neither engine nor keys.
package audit
