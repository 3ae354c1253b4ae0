package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// What is copied is told where that takes longer than a moment.
const (
	heavyFiles = 20_000
	heavyBytes = snapshot.Bytes(256 << 20)
)

// weigh tells what is about to be copied, where backends copy, and refuses what there is
// plainly no room for: ErrNoSpace. Each tree is copied twice, as base and as fork.
func (e *Engine) weigh(ctx context.Context, choices []choice) error {
	taken := map[string]snapshot.Bytes{}
	for _, c := range choices {
		b, ok := c.backend.(snapshot.Weigher)
		if !ok {
			continue
		}
		w, err := b.Weigh(ctx, snapshot.Tree{Path: c.tree})
		if errors.Is(err, errs.ErrInterrupted) {
			return err
		}
		if err != nil {
			continue // the copy itself says it, or the tree has just gone
		}
		what := fmt.Sprintf("%v in %d files", w.Bytes, w.Files)
		if taken[c.driver] += 2 * w.Bytes; w.Room >= 0 && taken[c.driver] > w.Room {
			return &errs.Error{
				Op: "copying", Component: c.driver, Path: c.tree, Kind: errs.ErrNoSpace,
				Err:   fmt.Errorf("it copies all of it, twice, and %s twice is more than the %v that are free for copies", what, w.Room),
				Hints: []string{"snapfs doctor (backends that copy nothing)"},
			}
		}
		if w.Files >= heavyFiles || w.Bytes >= heavyBytes {
			e.notice(fmt.Sprintf("the backend %s copies all of %s, twice: %s each time", c.driver, c.tree, what))
		}
	}
	return nil
}
