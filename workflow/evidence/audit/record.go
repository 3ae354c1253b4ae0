package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Types of records in an evidence log that no event of a sandbox causes. Every other record has the type of
// its event.
const (
	// Torn is the type of an evidence record which says that the line before was incomplete, as a killed
	// writer leaves it, and was cut off.
	Torn = "snapfs.evidence.torn"
	// Closed is the type of the evidence record with which a full file of an evidence log ends, and Continued that
	// of the record with which the next file begins.
	Closed    = "snapfs.evidence.closed"
	Continued = "snapfs.evidence.continued"
	// DiffRecorded is the type of an evidence record with the root hash of a manifest, which lists the
	// sandbox's changed files.
	DiffRecorded = "snapfs.diff.recorded"
	// Began is the type of the record in an evidence log with the digest of the signed statement about the
	// sandbox's start. Ended is that of the record about its end.
	Began = "snapfs.evidence.began"
	Ended = "snapfs.evidence.ended"
	// Checklist is the type of the record in an evidence log with the results of the readiness checklist,
	// which says whether this host can run a profile's sandboxes; see package readiness.
	Checklist = "snapfs.checklist.done"
)

// A Record is one line of an evidence log: one thing that was done to a sandbox.
type Record struct {
	// Seq is the number of the record, from 0, without gaps.
	Seq int64 `json:"seq"`
	// Prev is the digest of the line before, [FirstPrev] in the first record.
	Prev string `json:"prev"`
	// Time is the time of the host's clock, in UTC. Up is the time since the boot named Boot, in
	// milliseconds: a clock that was set differs from it.
	Time string `json:"time"`
	Boot string `json:"boot"`
	Up   int64  `json:"up"`
	// Type is a type of package events, or one of this package.
	Type string `json:"type"`
	// Sandbox is the identifier of the sandbox. It is in each record, so that none fits into
	// another log.
	Sandbox string `json:"sandbox"`
	// Data has strings, booleans, integers below 2^53, and lists and objects of these.
	Data map[string]any `json:"data"`
}

// FirstPrev stands in the first record of an evidence log in place of the digest of the line before, as there
// is none.
var FirstPrev = strings.Repeat("0", 2*sha256.Size)

// Digest returns the SHA-256 digest of line, a line of an evidence log without its line break, in hexadecimal
// digits.
func Digest(line []byte) string { return string(appendDigest(nil, line)) }

// appendDigest appends the digest of a line of an evidence log, in the form that [Digest] returns, to text.
func appendDigest(text, line []byte) []byte {
	sum := sha256.Sum256(line)
	return hex.AppendEncode(text, sum[:])
}
