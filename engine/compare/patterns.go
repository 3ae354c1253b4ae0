package compare

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
)

// Patterns select changed paths by what the user gave for an option such as --only, and note which patterns
// matched. An empty list selects the workspace.
type Patterns struct {
	workspace string
	list      []string
	found     []bool
	// Ruled is set if the patterns come from the section [result] of the sandbox's profile, see Selection. Then
	// git commits of the sandbox are not promoted.
	Ruled bool
}

// PatternsOf parses list, the user's patterns of changed paths, of the form of [pathlist.Match], relative to the
// workspace or absolute. Error: errs.ErrInvalid for an empty or malformed pattern.
func PatternsOf(workspace string, list []string) (*Patterns, error) {
	p := &Patterns{workspace: workspace, found: make([]bool, len(list))}
	for _, one := range list {
		if one == "" {
			return nil, &errs.Error{Op: "matching paths", Kind: errs.ErrInvalid, Err: errors.New("an empty path")}
		}
		if _, err := filepath.Match(one, "x"); err != nil {
			return nil, &errs.Error{Op: "matching paths", Path: one, Kind: errs.ErrInvalid, Err: err}
		}
		p.list = append(p.list, one)
	}
	return p, nil
}

// Selection returns the patterns by which the changes of a sandbox are selected: those of list, which the
// user gave, or if it is empty those of the section [result] in the sandbox's profile. The latter need not
// match anything. Errors: those of PatternsOf.
func Selection(rec *catalog.Record, list []string) (*Patterns, error) {
	if len(list) > 0 || len(rec.Policy.Result) == 0 {
		return PatternsOf(rec.Workspace, list)
	}
	p, err := PatternsOf(rec.Workspace, rec.Policy.Result)
	if err == nil {
		p.Ruled = true
		for i := range p.found {
			p.found[i] = true
		}
	}
	return p, err
}

// Left returns the absolute paths of the changes that the section [result] of the sandbox's profile does not
// select, so that they stay in the sandbox. Of a new or removed directory it lists only the directory. It
// returns nil for patterns that the user gave.
func (p *Patterns) Left(parts []Part) (left []string) {
	if !p.Ruled {
		return nil
	}
	for i := range parts {
		whole := "\x00"
		for j := range parts[i].Changes {
			c := &parts[i].Changes[j]
			abs := filepath.Join(parts[i].Root, c.Path)
			if c.TimeOnly() || p.Matches(abs) || strings.HasPrefix(abs, whole) {
				continue
			}
			if c.New == nil || c.Old == nil {
				if c.New != nil && c.New.Mode.IsDir() && p.below(abs) {
					continue // it exists because of what is selected in it
				}
				whole = abs + "/"
			}
			left = append(left, abs)
		}
	}
	return left
}

// below reports whether a pattern may select a path below the absolute path dir, although no pattern selects
// dir itself.
func (p *Patterns) below(dir string) bool {
	return slices.ContainsFunc(p.list, func(one string) bool {
		return strings.HasPrefix(filepath.Join(p.workspace, one), dir+"/") || strings.ContainsAny(one, "*?[") && hostfs.Within(dir, p.workspace)
	})
}

// Matches reports whether one of the user's patterns selects the absolute path abs of a change, or without
// patterns whether abs is in the workspace. It notes the patterns that matched.
func (p *Patterns) Matches(abs string) bool {
	if len(p.list) == 0 {
		return hostfs.Within(abs, p.workspace)
	}
	any := false
	for i, one := range p.list {
		if pathlist.Match(p.workspace, one, abs) {
			p.found[i], any = true, true
		}
	}
	return any
}

// Part returns the changes of part to process: all if it is the workspace, and otherwise those that a pattern
// selects. It adds the number of those left out to elsewhere, and returns false if none is left.
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

// Pick returns those changes below the directory root that the user's patterns select, and the changes that
// create directories above them.
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

// Unmatched returns an error that names those of the user's patterns which matched no changed path, or nil.
// option is the command-line option that the patterns came from. Error: errs.ErrInvalid.
func (p *Patterns) Unmatched(option string) error {
	var failures []error
	for i, found := range p.found {
		if !found {
			failures = append(failures, &errs.Error{
				Op: option, Path: pathlist.Printable(p.list[i]), Kind: errs.ErrInvalid, Err: errors.New("matches no change of the sandbox"),
			})
		}
	}
	return errors.Join(failures...)
}
