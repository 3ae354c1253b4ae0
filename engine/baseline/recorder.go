package baseline

import (
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
)

// A Recorder reads and writes the baselines of sandboxes: the original states of the files that they have
// changed. It is safe for concurrent use, by any number of processes: writers take a flock.
type Recorder struct {
	cat    *catalog.Catalog
	notice func(string)
	host   *hostfs.Host
	holds  Holds
}

// Holds is a function that compares three texts. It reports whether the text mine already has all changes
// that lead from the text base to the text next. Package merge provides it.
type Holds func(base, mine, next []byte) bool

// New returns the recorder of originals for the sandboxes of a catalogue. holds compares texts (package
// merge). notice gets messages for the user.
func New(cat *catalog.Catalog, host *hostfs.Host, holds Holds, notice func(string)) *Recorder {
	return &Recorder{cat: cat, notice: notice, host: host, holds: holds}
}
