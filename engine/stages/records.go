package stages

import "github.com/snapfs/snapfs/engine/catalog"

// Store reads and writes the files that describe promotions through the stages of a profile. Each promotion
// has a directory in the state directory.
type Store struct {
	// Catalog is that of the state directory.
	Catalog *catalog.Catalog
}
