package stages

import "github.com/snapfs/snapfs/engine/catalog"

// Store reads and writes the files that describe promotions through stages, one directory each in the state
// directory.
type Store struct {
	cat *catalog.Catalog
}

// New returns the store of the promotions through stages in the state directory of cat.
func New(cat *catalog.Catalog) *Store { return &Store{cat: cat} }
