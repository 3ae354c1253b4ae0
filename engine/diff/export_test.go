package diff

import "github.com/snapfs/snapfs/internal/vfs"

// Settled is the test's door to the rule about change times.
func Settled(opt Options, st *[2]vfs.Stat) bool {
	return (&worker{walk: &walk{opt: opt}}).provenEqual(st)
}
