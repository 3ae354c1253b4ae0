package serve

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/diff/report"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
)

// mostPaths is how many changed paths a reply to a coding agent lists at most. The reply also holds the
// number of all changed paths.
const mostPaths = 100

// A DiffRequest is a coding agent's request to compare two states of a sandbox's files, such as two
// checkpoints.
type DiffRequest struct {
	Sandbox string   `json:"sandbox" jsonschema:"the sandbox's name"`
	From    string   `json:"from,omitempty" jsonschema:"the checkpoint to compare with; by default the state in which the sandbox was made"`
	To      string   `json:"to,omitempty" jsonschema:"the checkpoint to compare; by default the present files"`
	Paths   []string `json:"paths,omitempty" jsonschema:"only changes at or below these paths, relative to the workspace"`
	NoPatch bool     `json:"no_patch,omitempty" jsonschema:"list the paths without the patch"`
}

// A ChangedPath is, in a [Diff] for an agent, a path that differs between two states of a sandbox's files.
type ChangedPath struct {
	Path string `json:"path" jsonschema:"relative to the workspace; absolute outside of it"`
	Kind string `json:"kind" jsonschema:"added, modified or deleted"`
}

// A Diff lists the paths that a sandbox changed, with a patch, as the reply to a [DiffRequest].
type Diff struct {
	Sandbox string        `json:"sandbox"`
	Count   int           `json:"count" jsonschema:"how many paths changed, also those not listed"`
	Paths   []ChangedPath `json:"paths" jsonschema:"the first 100"`
	Commits []string      `json:"commits,omitempty" jsonschema:"the branches and tags that commits in the sandbox moved"`
	Patch   *Text         `json:"patch,omitempty" jsonschema:"a patch as of git diff"`
}

// Diff compares two states of a sandbox's files. Errors: those of [compare.Comparer.Diff]; ErrDenied for a
// path outside the workspace.
func (s *Service) Diff(ctx context.Context, q DiffRequest) (Diff, error) {
	paths, err := s.Rules.allInside(q.Paths)
	if err != nil {
		return Diff{}, err
	}
	e, _, err := s.enter(ctx, q.Sandbox)
	if err != nil {
		return Diff{}, err
	}
	return compare.Served(ctx, func(ctx context.Context) (Diff, error) { return diffOf(ctx, e, q, paths) })
}

// diffOf compares the two states of a sandbox's files that q names, and returns the changes at or below the
// absolute paths; no paths select all changes.
func diffOf(ctx context.Context, e *engine.Engine, q DiffRequest, paths []string) (Diff, error) {
	r := Diff{Sandbox: q.Sandbox, Paths: []ChangedPath{}}
	changes, err := e.Compare.Diff(ctx, q.Sandbox, q.From, q.To)
	if err != nil {
		return r, err
	}
	defer changes.Close()
	changes.FindCommits() // the files of a repository that it cannot read stay in the list
	changes.Limit(paths)
	for _, g := range changes.Git {
		for _, ref := range g.Refs {
			r.Commits = append(r.Commits, tame(ref.Ref))
		}
	}
	for _, p := range changes.Parts {
		for _, c := range report.Of(slices.DeleteFunc(slices.Clone(p.Changes), diff.Change.TimeOnly)).Changes {
			path := c.Path
			if !p.Workspace {
				path = filepath.Join(p.Root, path)
			}
			if r.Count++; len(r.Paths) < mostPaths {
				r.Paths = append(r.Paths, ChangedPath{tame(path), c.Kind})
			}
		}
	}
	if q.NoPatch {
		return r, nil
	}
	text, err := patchOf(ctx, changes)
	r.Patch = &text
	return r, err
}

// patchOf returns the changes as a patch in the format of git diff, without its middle if it is too long for
// a reply.
func patchOf(ctx context.Context, changes *compare.Changes) (Text, error) {
	if err := changes.FindRenames(ctx); err != nil {
		return Text{}, err
	}
	w := newClip()
	if err := changes.WritePatch(ctx, w); err != nil {
		return Text{}, err
	}
	return w.text(), nil
}

// A Drift is the reply to an agent about how the real tree has changed since a sandbox was made: the changed
// paths, and which of them the sandbox changed too.
type Drift struct {
	Sandbox string      `json:"sandbox"`
	Since   time.Time   `json:"since"`
	Exact   bool        `json:"exact" jsonschema:"false: paths are found by their change time, and a deleted file shows as its directory only"`
	Count   int         `json:"count" jsonschema:"how many files changed"`
	Both    int         `json:"both" jsonschema:"how many of them the sandbox changed too"`
	Paths   []DriftPath `json:"paths" jsonschema:"the first 100"`
}

// A DriftPath is a path of the real tree that changed since a sandbox was made, in a [Drift], the reply to an
// agent about such changes.
type DriftPath struct {
	Path string `json:"path"`
	Kind string `json:"kind"`
	Both bool   `json:"both,omitempty" jsonschema:"the sandbox has changed it too"`
	Read bool   `json:"read,omitempty" jsonschema:"the sandbox has read it after it changed"`
}

// Drift reports to an agent how the real tree has changed since a sandbox was made. Errors: those of
// [compare.Comparer.DriftOf].
func (s *Service) Drift(ctx context.Context, q Named) (Drift, error) {
	e, _, err := s.enter(ctx, q.Sandbox)
	if err != nil {
		return Drift{}, err
	}
	d, err := e.Compare.DriftOf(ctx, q.Sandbox)
	if err != nil {
		return Drift{}, err
	}
	r := Drift{Sandbox: q.Sandbox, Since: d.Since, Exact: d.Exact, Count: d.Files, Both: d.Both, Paths: []DriftPath{}}
	for _, p := range d.Paths[:min(len(d.Paths), mostPaths)] {
		r.Paths = append(r.Paths, DriftPath{tame(s.relative(p.Path)), p.Kind, p.Both, p.Read})
	}
	return r, nil
}

// relative returns path relative to the workspace if it lies there, and otherwise unchanged, for the reply to
// an agent.
func (s *Service) relative(path string) string {
	if rel, err := filepath.Rel(s.Rules.Workspace, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

// A RefreshRequest is a coding agent's request to bring a sandbox up to date with the real tree. It says how
// to resolve conflicts.
type RefreshRequest struct {
	Sandbox string   `json:"sandbox" jsonschema:"the sandbox's name"`
	Mine    []string `json:"mine,omitempty" jsonschema:"resolve conflicts at these paths with the sandbox's version"`
	Theirs  []string `json:"theirs,omitempty" jsonschema:"resolve conflicts at these paths with the real tree's version"`
	Stop    bool     `json:"stop,omitempty" jsonschema:"end the sandbox's processes first; without this, a refresh is refused while some run"`
}

// A Refreshed is the result of [Service.Refresh], which brings a sandbox up to date: how many paths were
// merged, and which conflicts remain in the sandbox.
type Refreshed struct {
	Sandbox   string     `json:"sandbox"`
	Merged    int        `json:"merged" jsonschema:"how many paths both sides had changed and could be merged"`
	Resolved  int        `json:"resolved,omitempty" jsonschema:"how many conflicts of an earlier refresh are resolved now"`
	Conflicts []Conflict `json:"conflicts" jsonschema:"what to resolve in the sandbox: a text file has both versions between conflict markers"`
	More      int        `json:"more_conflicts,omitempty"`
}

// A Conflict is a path that both the sandbox and the real tree changed, and the reason why the changes cannot
// be merged. It is part of a reply to an agent.
type Conflict struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// conflicts returns the first 100 conflicts of a merge for a reply to a coding agent, and how many more there
// are.
func (s *Service) conflicts(all []reconcile.Conflict) (list []Conflict, more int) {
	list = []Conflict{}
	for _, c := range all[:min(len(all), mostPaths)] {
		list = append(list, Conflict{tame(s.relative(c.Path)), tame(c.Why)})
	}
	return list, len(all) - len(list)
}

// Refresh makes the present real tree the base of a sandbox and merges the sandbox's changes on top. It changes the
// sandbox only. Errors: those of [reconcile.Reconciler.Refresh].
func (s *Service) Refresh(ctx context.Context, q RefreshRequest) (Refreshed, error) {
	mine, err := s.Rules.allInside(q.Mine)
	theirs, terr := s.Rules.allInside(q.Theirs)
	if err = errors.Join(err, terr); err != nil {
		return Refreshed{}, err
	}
	e, _, err := s.enter(ctx, q.Sandbox)
	if err == nil && q.Stop {
		err = e.Supervise.Stop(ctx, q.Sandbox)
	}
	if err != nil {
		return Refreshed{}, err
	}
	done, err := e.Reconcile.Refresh(ctx, q.Sandbox, reconcile.RefreshOptions{Mine: mine, Theirs: theirs})
	if err != nil {
		return Refreshed{}, errs.With("refreshing", "", err)
	}
	r := Refreshed{Sandbox: q.Sandbox, Merged: done.Merged, Resolved: done.Resolved}
	r.Conflicts, r.More = s.conflicts(done.Conflicts)
	return r, nil
}
