// Package sandbox manages the stored parts of a sandbox: its record in the catalogue, and the
// forks and snapshots of its trees. It creates, seals, forks and removes them so that a crash
// leaves nothing, or something that the next command recognises.
//
// Read [Store] first. The package knows no processes: a caller that changes the trees of a
// running sandbox freezes it first (package supervise).
package sandbox
