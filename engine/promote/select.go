package promote

import (
	"path"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/promote/nodes"
	"github.com/snapfs/snapfs/errs"
)

// Select returns those changes that are at or below paths, and the new directories that contain them. Paths
// are relative to the root; none means all. Errors: ErrNotFound for a path without a change.
func Select(changes []diff.Change, paths []string) ([]diff.Change, error) {
	if len(paths) == 0 {
		return changes, nil
	}
	wanted := map[string]bool{} // value: whether it was found
	for _, p := range paths {
		p = path.Clean(p)
		if strings.HasPrefix(p, "/") || p == ".." || strings.HasPrefix(p, "../") {
			return nil, &errs.Error{Op: doing, Path: pathlist.Printable(p), Kind: errs.ErrNotFound}
		}
		wanted[p] = false
	}
	take, needed := make([]bool, len(changes)), map[string]bool{}
	for i, c := range changes {
		for p := range wanted {
			if c.Path == p || diff.Inside(c.Path, p) {
				wanted[p], take[i] = true, true
			}
		}
		for dir, _ := nodes.Split(c.Path); take[i] && c.New != nil && dir != "."; dir, _ = nodes.Split(dir) {
			needed[dir] = true
		}
	}
	for p, found := range wanted {
		if !found {
			return nil, &errs.Error{Op: doing, Path: pathlist.Printable(p), Kind: errs.ErrNotFound}
		}
	}
	var chosen []diff.Change
	for i, c := range changes {
		if take[i] || needed[c.Path] && nodes.IsDir(c.New) && !nodes.IsDir(c.Old) {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}
