package compare

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
)

// Patterns select paths, and record which patterns matched. An empty list selects the
// workspace.
type Patterns struct {
	workspace string
	list      []string
	found     []bool
}

// PatternsOf parses patterns, relative to the workspace or absolute. Error:
// errs.ErrNotFound for an empty or malformed pattern.
func PatternsOf(workspace string, list []string) (*Patterns, error) {
	p := &Patterns{workspace: workspace, found: make([]bool, len(list))}
	for _, one := range list {
		if one == "" {
			return nil, &errs.Error{Op: "matching paths", Kind: errs.ErrNotFound, Err: errors.New("an empty path")}
		}
		if _, err := filepath.Match(one, "x"); err != nil {
			return nil, &errs.Error{Op: "matching paths", Path: one, Kind: errs.ErrNotFound, Err: err}
		}
		p.list = append(p.list, one)
	}
	return p, nil
}

// Matches reports whether a pattern selects an absolute path.
func (p *Patterns) Matches(abs string) bool {
	if len(p.list) == 0 {
		return hostfs.Within(abs, p.workspace)
	}
	any := false
	for i, one := range p.list {
		if MatchPath(p.workspace, one, abs) {
			p.found[i], any = true, true
		}
	}
	return any
}

// MatchPath reports whether a pattern matches an absolute path or one of its
// parents. A pattern with a wildcard and no slash matches any element of a path
// in the workspace.
func MatchPath(workspace, pattern, abs string) bool {
	if !strings.Contains(pattern, "/") && strings.ContainsAny(pattern, "*?[") {
		rel, err := filepath.Rel(workspace, abs)
		if err != nil || !filepath.IsLocal(rel) {
			return false
		}
		for element := range strings.SplitSeq(rel, "/") {
			if ok, err := filepath.Match(pattern, element); ok && err == nil {
				return true
			}
		}
		return false
	}
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(workspace, pattern)
	}
	pattern = filepath.Clean(pattern)
	for {
		if ok, err := filepath.Match(pattern, abs); abs == pattern || ok && err == nil {
			return true
		}
		if abs == "/" || abs == "." {
			return false
		}
		abs = filepath.Dir(abs)
	}
}

// Part returns the part with only its selected changes: all in the workspace, and outside of
// it those that a pattern matches. It adds the number of the others to elsewhere, and returns
// false if no change is left.
func (p *Patterns) Part(part Part, elsewhere *int) (Part, bool) {
	if part.Workspace {
		return part, true
	}
	picked := p.Pick(part.Root, part.Changes)
	if len(p.list) == 0 || len(picked) == 0 {
		*elsewhere += diff.Count(part.Changes)
		return part, false
	}
	*elsewhere += diff.Count(part.Changes) - diff.Count(picked)
	part.Changes = picked
	return part, true
}

// Pick returns the selected changes, and the new directories that contain them.
func (p *Patterns) Pick(root string, changes []diff.Change) []diff.Change {
	if len(p.list) == 0 && root == p.workspace {
		return changes
	}
	take, needed := make([]bool, len(changes)), map[string]bool{}
	for i, c := range changes {
		take[i] = p.Matches(filepath.Join(root, c.Path))
		for dir := filepath.Dir(c.Path); take[i] && c.New != nil && dir != "."; dir = filepath.Dir(dir) {
			needed[dir] = true
		}
	}
	var picked []diff.Change
	for i, c := range changes {
		made := c.New != nil && c.New.Mode.IsDir() && (c.Old == nil || !c.Old.Mode.IsDir())
		if take[i] || needed[c.Path] && made {
			picked = append(picked, c)
		}
	}
	return picked
}

// Unmatched returns an error for the first pattern that matched no change, or
// nil. Error: errs.ErrNotFound.
func (p *Patterns) Unmatched() error {
	for i, found := range p.found {
		if !found {
			return &errs.Error{Op: "promoting", Path: pathlist.Printable(p.list[i]), Kind: errs.ErrNotFound, Err: errors.New("the sandbox has not changed this path")}
		}
	}
	return nil
}
