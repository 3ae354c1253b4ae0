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

// Patterns pick paths; none picks the workspace.
type Patterns struct {
	workspace string
	list      []string
	found     []bool
}

func PatternsOf(workspace string, list []string) (*Patterns, error) {
	p := &Patterns{workspace: workspace, found: make([]bool, len(list))}
	for _, one := range list {
		if one == "" {
			return nil, &errs.Error{Op: "looking for", Kind: errs.ErrNotFound, Err: errors.New("an empty path")}
		}
		if _, err := filepath.Match(one, "x"); err != nil {
			return nil, &errs.Error{Op: "looking for", Path: one, Kind: errs.ErrNotFound, Err: err}
		}
		p.list = append(p.list, one)
	}
	return p, nil
}

// Matches reports whether an absolute path is picked.
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

// MatchPath reports whether a pattern names an absolute path, or what it lies in.
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

// Part picks what of a part is looked at: the whole workspace, and elsewhere what
// is named.
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

// Pick takes the changes that are matched, and the new directories that these
// need to lie in.
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

// Unmatched is the error of what picks nothing.
func (p *Patterns) Unmatched() error {
	for i, found := range p.found {
		if !found {
			return &errs.Error{Op: "carrying", Path: pathlist.Printable(p.list[i]), Kind: errs.ErrNotFound, Err: errors.New("the sandbox has not changed it")}
		}
	}
	return nil
}
