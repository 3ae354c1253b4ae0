package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// Info is what is known of a sandbox, for people and programs.
type Info struct {
	*catalog.Record
	// Running: a process holds it now.
	Running bool `json:"running"`
	// Base is "frozen" when that of the workspace's tree keeps still, else "live".
	Base string `json:"base"`
	// Size is what it holds that its base does not, or -1 when no backend of
	// it can tell.
	Size snapshot.Bytes `json:"size"`
	// Drift is how far the real workspace has moved since the base was taken.
	Drift Drift `json:"drift"`
}

// Drift is how far the real tree has moved since a base was taken.
type Drift struct {
	// Known: the walk that counts was finished in time.
	Known bool `json:"known"`
	// Paths is the number of paths of the workspace that changed since.
	Paths int `json:"paths"`
	// Since is the instant of the base.
	Since time.Time `json:"since"`
}

// List describes all sandboxes, sorted by name. What cannot be described is
// reported beside them. Cost: a walk of each workspace, bounded in time.
func (e *Engine) List(ctx context.Context) ([]Info, error) {
	records, errs := e.cat.List()
	walks := map[string][]time.Time{}
	infos := make([]Info, 0, len(records))
	for _, r := range records {
		info, err := e.describe(ctx, r, walks)
		if err != nil {
			if _, gone := e.cat.Get(r.Name); errors.Is(gone, snapshot.ErrNotFound) {
				continue // removed meanwhile
			}
			errs = append(errs, fmt.Errorf("%s: %w", r.Name, err))
		}
		infos = append(infos, info)
	}
	return infos, errors.Join(errs...)
}

// Show describes one sandbox.
func (e *Engine) Show(ctx context.Context, name string) (Info, error) {
	rec, err := e.cat.Get(name)
	if err != nil {
		return Info{}, err
	}
	return e.describe(ctx, rec, map[string][]time.Time{})
}

// describe completes a record. walks keeps the change times of workspaces that
// were walked already; a workspace whose walk was not finished has nil.
func (e *Engine) describe(ctx context.Context, r *catalog.Record, walks map[string][]time.Time) (Info, error) {
	info := Info{Record: r, Base: "frozen", Size: -1}
	conn, err := e.dial(r)
	if err == nil && conn != nil {
		info.Running = true
		err = conn.Close()
	}
	info.Running = info.Running || r.Ephemeral
	for _, t := range r.Trees {
		if within(r.Workspace, t.Path) { // the deepest comes last
			info.Drift.Since, info.Base = t.Taken, "live"
			if t.Frozen {
				info.Base = "frozen"
			}
		}
		b, berr := e.backendOf(ctx, t)
		if berr != nil {
			err = first(err, berr)
			continue
		}
		if m, ok := b.(snapshot.Meter); ok {
			n, merr := m.Usage(ctx, t.Fork)
			if merr == nil {
				info.Size = max(info.Size, 0) + n
			} else if !errors.Is(merr, snapshot.ErrNotSupported) {
				err = first(err, merr)
			}
		}
	}
	times, walked := walks[r.Workspace]
	if !walked {
		times = changeTimes(ctx, r.Workspace, e.cat.Dir())
		walks[r.Workspace] = times
	}
	info.Drift.Known = times != nil
	for _, ct := range times {
		if ct.After(info.Drift.Since) {
			info.Drift.Paths++
		}
	}
	return info, err
}

// first: what is wrong with one tree is mostly wrong with all.
func first(err, next error) error {
	if err != nil {
		return err
	}
	return next
}

// Names lists the names of all sandboxes, sorted.
func (e *Engine) Names() ([]string, error) {
	records, errs := e.cat.List()
	names := make([]string, 0, len(records))
	for _, r := range records {
		names = append(names, r.Name)
	}
	return names, errors.Join(errs...)
}

// WorkspaceOf is the workspace of a sandbox.
func (e *Engine) WorkspaceOf(name string) (string, error) {
	r, err := e.cat.Get(name)
	if err != nil {
		return "", err
	}
	return r.Workspace, nil
}
