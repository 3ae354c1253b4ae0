// Package timeline lists the snapshots of a sandbox in the order of time, with the changes that each of them
// brought, for the command snapfs timeline.
package timeline

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/keypoint"
	"github.com/snapfs/snapfs/internal/fault"
)

// maxPaths is how many changed paths the timeline lists for each snapshot, in [Changed.Paths]. It only counts
// further ones.
const maxPaths = 5

// A Timeline lists the snapshots of a sandbox, oldest first, with their changes, for `snapfs timeline` and as
// JSON.
type Timeline struct {
	Sandbox string `json:"sandbox"`
	// Live is set if the base is the real tree as it is now: what was promoted since then shows as no change of the
	// first snapshot.
	Live    bool    `json:"live_base"`
	Entries []Entry `json:"states"`
}

// An Entry is one snapshot in the timeline of a sandbox, with the changes since its parent, the snapshot with
// which it is compared.
type Entry struct {
	Name  string    `json:"name"`
	Taken time.Time `json:"taken"`
	// Parent is the snapshot with which Changed compares it, "" for the base.
	Parent string `json:"parent,omitempty"`
	// Why is why snapfs took it by itself, nil where somebody asked for it; Text says the same in a few words.
	Why  *catalog.Why `json:"why,omitempty"`
	Text string       `json:"text"`
	// Current is set for the snapshot that the sandbox's files last started from.
	Current bool    `json:"current"`
	Changed Changed `json:"changed"`
}

// Changed counts the changed files between two states of a sandbox, and lists the first of them.
type Changed struct {
	Added    int `json:"added"`
	Modified int `json:"modified"`
	Deleted  int `json:"deleted"`
	// Paths are the first changed paths, those in the workspace relative to it; More counts the others.
	Paths []string `json:"paths"`
	More  int      `json:"more,omitempty"`
	// Unknown is why the changes cannot be listed.
	Unknown string `json:"unknown,omitempty"`
}

// Of returns the timeline, the list of snapshots with their changes, of the sandbox called name. If a
// postponed snapshot is due, it waits until that has been taken. Cost: a comparison for each snapshot, in
// proportion to its changes where the backend lists them. Errors: errs.ErrNotFound, ErrBusy.
func Of(ctx context.Context, e *engine.Engine, name string) (*Timeline, error) {
	rec, err := Settled(ctx, e, name)
	if err != nil {
		return nil, err
	}
	t := &Timeline{Sandbox: name, Entries: []Entry{}}
	for _, tree := range rec.Trees {
		t.Live = t.Live || !tree.Frozen
	}
	for _, m := range rec.Snapshots {
		entry := Entry{Name: m.Name, Taken: m.Taken, Parent: m.Parent, Why: m.Why, Text: TextOf(m), Current: m.Name == rec.At}
		entry.Changed, err = between(ctx, e, rec, m.Parent, m)
		if ctx.Err() != nil {
			return nil, err
		}
		if err != nil { // the other states may be known
			entry.Changed = Changed{Paths: []string{}, Unknown: err.Error()}
		}
		t.Entries = append(t.Entries, entry)
	}
	return t, nil
}

// Settled returns the record of the sandbox called name. If a postponed automatic snapshot or a promised checkpoint is
// due, Settled first takes and releases the sandbox's lock, by which the snapshot is taken. The record lists every
// snapshot that was due when Settled was called.
func Settled(ctx context.Context, e *engine.Engine, name string) (*catalog.Record, error) {
	// This comes first: a record that is read later lists a snapshot that is no longer due.
	waits := e.KeyPoints.HasPostponed(name) || keypoint.IsPromised(e.StateDir(), name)
	if err := fault.Point(ctx, "read the record"); err != nil {
		return nil, err
	}
	if !waits {
		return e.Catalog().Get(name)
	}
	h, err := e.Supervise.HoldAny(ctx, name)
	if err != nil {
		return nil, err
	}
	defer h.Release()
	return h.Record, nil
}

// TextOf returns, in a few words for a person, why the snapshot m was taken: because somebody asked for it,
// because it was received from another machine, or at which key point.
func TextOf(m catalog.NamedSnapshot) string {
	switch {
	case m.Why != nil:
		return keypoint.Text(*m.Why)
	case m.Sent != "":
		return "received"
	}
	return "asked for"
}

// Between counts the changed files between the snapshots from and to of the sandbox called name; an empty
// from is the base.
func Between(ctx context.Context, e *engine.Engine, name, from, to string) (Changed, error) {
	rec, err := e.Catalog().Get(name)
	if err != nil {
		return Changed{}, err
	}
	m, _ := rec.Snapshot(to)
	return between(ctx, e, rec, from, m)
}

func between(ctx context.Context, e *engine.Engine, rec *catalog.Record, from string, to catalog.NamedSnapshot) (Changed, error) {
	if parent, _ := rec.Snapshot(from); from == "" && to.Base != nil || from != "" && generation(parent) != generation(to) {
		return Changed{Paths: []string{}, Unknown: "a refresh has replaced the base"}, nil
	}
	changes, err := e.Compare.ChangesAt(ctx, rec, from, to.Name, nil)
	if err != nil {
		return Changed{}, err
	}
	defer changes.Close()
	return count(changes, rec.Workspace), nil
}

// generation returns the number of the base on which a snapshot was taken, since each refresh of a sandbox
// makes a new one; -1 for the sandbox's present base.
func generation(m catalog.NamedSnapshot) int {
	if m.Base == nil {
		return -1
	}
	return m.Base.Refreshed
}

func count(changes *compare.Changes, workspace string) Changed {
	c := Changed{Paths: []string{}}
	for _, part := range changes.Parts {
		for _, ch := range part.Changes {
			switch {
			case ch.TimeOnly():
				continue
			case ch.Kind == diff.Added:
				c.Added++
			case ch.Kind == diff.Deleted:
				c.Deleted++
			default:
				c.Modified++
			}
			if len(c.Paths) == maxPaths {
				c.More++
				continue
			}
			path := filepath.Join(part.Root, ch.Path)
			if inside, ok := strings.CutPrefix(path, workspace+"/"); ok {
				path = inside
			}
			c.Paths = append(c.Paths, path)
		}
	}
	return c
}
