// Package compare finds the differences between two states of a sandbox, and the drift of the real tree from
// a sandbox's base.
//
// Read [Changes] and [DriftReport] first, then [Comparer]. The package reads trees and writes none; it must
// not know merges or promotions.
package compare
