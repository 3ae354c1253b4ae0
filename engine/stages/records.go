package stages

import "github.com/snapfs/snapfs/engine/catalog"

// Store reads and writes the records of promotions through stages, one directory
// each.
type Store struct {
	cat *catalog.Catalog
}

// New returns the store in the state directory of a catalogue.
func New(cat *catalog.Catalog) *Store { return &Store{cat: cat} }
