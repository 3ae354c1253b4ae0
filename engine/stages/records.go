package stages

import "github.com/snapfs/snapfs/engine/catalog"

// A Store reads and writes the records of promotions through stages.
type Store struct {
	cat *catalog.Catalog
}

// New returns the store of a catalogue's directory.
func New(cat *catalog.Catalog) *Store { return &Store{cat: cat} }
