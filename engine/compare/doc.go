// Package compare finds what differs between two states of a sandbox, and how far
// the real tree has drifted from its base.
//
// Read [Changes] and [DriftReport] first, then [Comparer]. The package reads trees
// and writes none.
package compare
