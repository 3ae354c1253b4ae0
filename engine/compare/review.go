package compare

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/diff/page"
	"github.com/snapfs/snapfs/engine/diff/patch"
	"github.com/snapfs/snapfs/engine/pathlist"
)

// Limit removes from c all changes but those at or below one of paths, which are absolute and clean. Without paths it
// removes none.
func (c *Changes) Limit(paths []string) {
	if len(paths) == 0 {
		return
	}
	for i, p := range c.Parts {
		c.Parts[i].Changes = slices.DeleteFunc(slices.Clone(p.Changes), func(ch diff.Change) bool {
			abs := filepath.Join(p.Root, ch.Path)
			return !slices.ContainsFunc(paths, func(path string) bool { return pathlist.Within(abs, path) })
		})
	}
}

// PageParts returns the changes of all parts in the form in which package page shows them for review in a browser.
func (c *Changes) PageParts() []page.Part {
	var parts []page.Part
	for _, p := range c.Parts {
		parts = append(parts, page.Part{Root: p.Root, Old: p.Old, New: p.New, Changes: p.Changes, Renames: p.Renames})
	}
	return parts
}

// WritePatch writes the changes of all parts to w as a patch in the format of git diff. A comment line precedes each
// part outside the workspace. Renames are those that FindRenames has found. After an error the patch is incomplete.
func (c *Changes) WritePatch(ctx context.Context, w io.Writer) error {
	for _, p := range c.Parts {
		if !p.Workspace {
			fmt.Fprintf(w, "# in %s:\n", strings.ReplaceAll(p.Root, "\n", "?"))
		}
		if err := patch.Write(ctx, w, p.Old, p.New, p.Changes, patch.Options{Renames: p.Renames}); err != nil {
			return err
		}
	}
	return nil
}
