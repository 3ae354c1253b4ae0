package engine

import (
	"context"

	"github.com/snapfs/snapfs/engine/diff"
)

// FindRenames pairs what was moved, part by part. Cost and errors: those of
// diff.Renames.
func (c *Changes) FindRenames(ctx context.Context) error {
	for i := range c.Parts {
		p := &c.Parts[i]
		found, err := diff.Renames(ctx, p.Old, p.New, p.Changes, p.opt)
		if err != nil {
			return err
		}
		p.Renames = found
	}
	return nil
}
