package stages

import "github.com/snapfs/snapfs/engine/catalog"

// Store reads and writes the files that describe promotions through the stages of a profile. Each promotion
// has a directory in the state directory.
type Store struct {
	cat *catalog.Catalog
}

// New returns the store for the files, in the state directory of cat, that describe promotions through the
// stages of a profile.
func New(cat *catalog.Catalog) *Store { return &Store{cat: cat} }
