package hostfs

import (
	"context"
	"os"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// EveryBackend opens each backend that may hold data of sandboxes, so that a garbage collection finds all
// data. It opens a backend once if its data lies in the state directory, else once for each location in the
// catalogue. A backend that cannot be opened is left out. records are those of all sandboxes.
func (hf *Host) EveryBackend(ctx context.Context, records []*catalog.Record) ([]snapshot.Backend, error) {
	places, err := hf.cat.Locations()
	seenTree := map[catalog.Location]bool{}
	for _, r := range records {
		for _, t := range r.Trees {
			if p := (catalog.Location{Driver: t.Driver, Path: t.Path}); !seenTree[p] {
				seenTree[p], places = true, append(places, p)
			}
		}
	}
	for _, d := range hf.drivers {
		if _, err := os.Stat(hf.cat.DataDir(d.Name)); err == nil {
			places = append(places, catalog.Location{Driver: d.Name, Path: "/"})
		}
	}
	seen := map[string]bool{}
	var found []snapshot.Backend
	for _, p := range places {
		b, err := hf.BackendOf(ctx, catalog.Tree{Driver: p.Driver, Path: p.Path})
		if err != nil {
			continue // the driver does not support this filesystem, or it is gone
		}
		key := p.Driver + " " + b.Facts().Hidden
		if !seen[key] {
			seen[key], found = true, append(found, b)
		}
	}
	return found, err
}
