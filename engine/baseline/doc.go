// Package baseline records what the base of a sandbox held at each path that the
// sandbox changed. On a live base the real file may change afterwards, and the
// merge needs the original.
//
// Read [Recorder] first, then the record of one sandbox and its file format. The
// package knows no merge and no drift: it answers what was there, or that this is
// not known.
package baseline
