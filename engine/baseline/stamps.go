package baseline

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/errs"
)

// StampsOf are the stamps of what a sandbox's promotions left, by target.
type StampsOf map[string]map[string]promote.Stamp

// In are those of what lies in a tree, by path relative to it.
func (s StampsOf) In(tree string) map[string]promote.Stamp {
	all := map[string]promote.Stamp{}
	for root, stamps := range s {
		for path, stamp := range stamps {
			if rel, err := filepath.Rel(tree, filepath.Join(root, path)); err == nil && filepath.IsLocal(rel) {
				all[rel] = stamp
			}
		}
	}
	return all
}

const appliedFile = "applied.json"

func (bl *Recorder) Stamps(name string) (StampsOf, error) {
	known := StampsOf{}
	data, err := os.ReadFile(filepath.Join(bl.cat.Path(name), appliedFile))
	if errors.Is(err, os.ErrNotExist) {
		return known, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &known)
	}
	if err != nil {
		return nil, &errs.Error{Op: "reading what was applied of", Path: name, Kind: errs.ErrCorrupt, Err: err}
	}
	return known, nil
}

// Remember adds stamps to those of a sandbox, if it is still there.
func (bl *Recorder) Remember(name, root string, stamps map[string]promote.Stamp) error {
	if len(stamps) == 0 {
		return nil
	}
	known, err := bl.Stamps(name)
	if err != nil {
		return err
	}
	if known[root] == nil {
		known[root] = map[string]promote.Stamp{}
	}
	maps.Copy(known[root], stamps)
	data, err := json.MarshalIndent(known, "", "  ")
	if err != nil {
		return fmt.Errorf("writing what was applied of %s: %w", name, err)
	}
	if err := bl.cat.WriteFile(name, appliedFile, append(data, '\n')); !errors.Is(err, errs.ErrNotFound) {
		return err
	}
	return nil
}
