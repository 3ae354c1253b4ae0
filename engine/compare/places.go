package compare

import (
	"path/filepath"

	"github.com/snapfs/snapfs/engine/diff"
)

// Places is a lookup table by which a caller finds the [Part] of a comparison that changed a path or
// something below it. It maps the absolute path of each change, and of all its parents, to the part. itself
// is set if the path itself is changed.
type Places map[string]struct {
	part   *Part
	itself bool
}

// At returns the part of a comparison with a change at one of the absolute paths places or, unless alone is
// set, below one; nil if there is none.
func (all Places) At(places []string, alone bool) *Part {
	for _, place := range places {
		if found, ok := all[place]; ok && (found.itself || !alone) {
			return found.part
		}
	}
	return nil
}

// PlacesOf returns a lookup table for the changed paths of all parts of c, by which a path's change is found.
func PlacesOf(c *Changes) Places {
	changed := Places{}
	for i := range c.Parts {
		changed.Add(&c.Parts[i], c.Parts[i].Changes)
	}
	return changed
}

// Add adds the paths of the changes of part p to the lookup table. It ignores changes of only a directory's
// time.
func (all Places) Add(p *Part, changes []diff.Change) {
	for _, c := range changes {
		if c.TimeOnly() {
			continue
		}
		path := filepath.Join(p.Root, c.Path)
		for at := path; ; at = filepath.Dir(at) {
			entry, known := all[at]
			if !known {
				entry.part = p
			}
			entry.itself = entry.itself || at == path
			all[at] = entry
			if known || at == "/" {
				break
			}
		}
	}
}
