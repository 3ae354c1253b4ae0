package diff

import "github.com/snapfs/snapfs/internal/kernel"

// Settled is the test's door to the rule about change times.
func Settled(opt Options, st *[2]kernel.Stat) bool {
	return (&worker{walk: &walk{opt: opt}}).settled(st)
}
