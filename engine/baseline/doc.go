// Package baseline records the original state of each path that a sandbox has
// changed. On a live base the real file may change afterwards, and a merge needs
// the original.
//
// Read [Recorder] first, then [Baseline], the record of one sandbox. The package
// must not know merges or drift: it returns the original state, or why that is
// not known.
package baseline
