package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
)

// Info describes a sandbox for lists and for snapfs show: its entry in the catalogue and its present state.
// [Engine.List] and [Engine.Show] make it.
type Info struct {
	*catalog.Record // without the values of variables, see [catalog.Policy.Shown]
	// Running is set if the sandbox has a supervisor now.
	Running bool `json:"running"`
	// Base is "frozen" if the base of the workspace's tree is, else "live".
	Base string `json:"base"`
	// PausedAt is the time at which the sandbox will be paused by its ttl; RemovedAt the time
	// at which it will be removed. Both are wall clock times; zero means never.
	PausedAt  time.Time `json:"paused_at,omitzero"`
	RemovedAt time.Time `json:"removed_at,omitzero"`
	// Size is the number of bytes that the sandbox stores beyond its base, or -1 if it was not
	// measured or no backend can tell. Measured is set if it was measured.
	Size     snapshot.Bytes `json:"size"`
	Measured bool           `json:"measured"`
	// Drift counts the changes of the real workspace since the base.
	Drift Drift `json:"drift"`
	// Conflicts are the unresolved conflicts of a refresh. Only [Engine.Show] fills them in.
	Conflicts []reconcile.Conflict `json:"conflicts,omitempty"`
	// Masked lists the paths that its processes find empty: secrets, and what the policy hides. Only
	// [Engine.Show] fills it in, where the workspace exists.
	Masked []string `json:"masked,omitempty"`
	// HiddenLater counts the places that do not exist yet and that its processes will not see. It is
	// filled in with Masked.
	HiddenLater int `json:"hidden_later,omitempty"`
	// Unfinished is a promotion of the sandbox that waits for its unmounted target, or nil.
	Unfinished *reconcile.Unfinished `json:"unfinished,omitempty"`
}

// Drift counts how many files of the real tree have changed since a sandbox's base was taken.
type Drift struct {
	// Known is set if the search finished in time; otherwise the counts mean nothing.
	Known bool `json:"known"`
	// Paths is the number of changed paths of the workspace, counted as in DriftReport.Files.
	Paths int `json:"paths"`
	// Both counts the paths that the sandbox changed too. [Engine.List] counts them for frozen
	// bases only.
	Both int `json:"both,omitempty"`
	// Since is the instant of the base.
	Since time.Time `json:"since"`
}

// List describes all sandboxes, or those that have one of the workspaces, sorted by name. Sandboxes that
// cannot be described are reported in the error, beside the list. Measuring sizes takes at most [SizeBudget]
// for all sandboxes together, detecting drift [DriftBudget]; all lifts both bounds. If there are many sandboxes, one in
// which nothing has run since an earlier list has the size that was measured then, unless all is set. Other cost: a look
// at each sandbox's entry of the catalogue. Sandboxes of one workspace with a live base share one walk of the workspace.
func (e *Engine) List(ctx context.Context, all bool, workspaces ...string) ([]Info, error) {
	began := time.Now()
	listed := e.cat.ReadCached()
	defer e.cat.SaveCache(listed)
	failures := listed.Failures
	records := slices.DeleteFunc(slices.Clone(listed.Records), func(r *catalog.Record) bool {
		return e.removing[r.ID] || workspaces != nil && !slices.Contains(workspaces, r.Workspace)
	})
	for _, r := range records {
		_ = e.Compare.CompleteBases(ctx, r) // without a base the drift is unknown
	}
	l := listing{sizes: ctx, drift: ctx, walks: walksOf(records), now: catalog.Now(), records: listed, measure: all, unchanged: map[frozenBase]bool{}}
	if !all {
		var cancel context.CancelFunc
		l.drift, cancel = context.WithTimeout(ctx, max(DriftBudget-time.Since(began), DriftBudget/4))
		defer cancel()
	}
	drift := make([]Drift, len(records))
	for i, r := range records {
		drift[i] = e.countDrift(&l, r)
	}
	if !all {
		var cancel context.CancelFunc
		l.sizes, cancel = context.WithTimeout(ctx, SizeBudget)
		defer cancel()
	}
	infos := make([]Info, 0, len(records))
	for i, r := range records {
		info, err := e.describe(&l, r)
		if err != nil {
			now, gone := e.cat.Get(r.Name)
			switch {
			case errors.Is(gone, errs.ErrNotFound), gone == nil && now.ID != r.ID:
				continue // removed meanwhile
			case r.State != catalog.Ready || gone == nil && !slices.Equal(now.Trees, r.Trees):
				// its trees are being made, or were replaced meanwhile
			default:
				failures = append(failures, fmt.Errorf("%s: %w", r.Name, err))
			}
		}
		info.Drift = drift[i]
		infos = append(infos, info)
	}
	return infos, errors.Join(failures...)
}

// A listing holds what one call of [Engine.List] or [Engine.Show] uses for every sandbox: the contexts that
// bound the time for all sizes and for all drift, the shared walks of workspaces, and the present time.
type listing struct {
	sizes, drift context.Context
	walks        driftWalks
	now          catalog.Instant
	// records has the sizes of an earlier list, which are not used if measure is set. It may be nil.
	records *catalog.Listing
	measure bool
	// unchanged has the frozen bases since which nothing has changed in the real tree.
	unchanged map[frozenBase]bool
}

// A frozenBase is the base of a tree. Sandboxes that were forked from one another often have the same.
type frozenBase struct {
	driver, path string
	id           snapshot.ID
}

// Show describes one sandbox in full. In addition to the description in [Engine.List] it has the sandbox's
// conflicts and the paths that its policy masks.
func (e *Engine) Show(ctx context.Context, name string) (Info, error) {
	rec, err := e.cat.Get(name)
	if err != nil {
		return Info{}, err
	}
	if err := e.Compare.CompleteBases(ctx, rec); err != nil {
		return Info{}, err
	}
	soon, cancel := context.WithTimeout(ctx, DriftBudget)
	defer cancel()
	l := listing{sizes: ctx, drift: soon, now: catalog.Now(), measure: true}
	info, err := e.describe(&l, rec)
	info.Drift = e.countDrift(&l, rec)
	if err == nil {
		info.Masked, info.HiddenLater, _ = e.Host.Masked(ctx, rec) // without its workspace nothing starts in it
		info.Conflicts, err = e.Reconcile.Conflicts(ctx, name)
	}
	return info, err
}

// describe returns the [Info] of a sandbox for a list, without its drift, and with its size while li.sizes
// has time left.
func (e *Engine) describe(li *listing, r *catalog.Record) (Info, error) {
	info := Info{Record: r, Base: "frozen", Size: -1, Running: r.Ephemeral, Unfinished: e.Reconcile.UnfinishedOf(r.Name)}
	var err error
	if r.Supervisor != nil { // else nothing runs, and there is no socket
		var running bool
		running, err = e.isRunning(li.drift, r)
		info.Running = info.Running || running
	}
	if l := r.Policy.Limits; l.Timed() && r.Ended == nil {
		made := li.now.Wall.Add(-r.AgeAt(li.now))
		if l.TTL > 0 {
			info.PausedAt = made.Add(l.TTL)
		}
		if l.RemovalAge() > 0 {
			info.RemovedAt = made.Add(l.RemovalAge())
		}
	}
	if t, ok := compare.WorkspaceTree(r); ok && !t.Frozen {
		info.Base = "live"
	}
	var serr error
	info.Size, info.Measured, serr = e.sizeOf(li, r)
	shown := *r
	shown.Policy, info.Record = r.Policy.Shown(), &shown
	return info, first(err, serr)
}

// sizeOf returns the size of a sandbox as in [Info], and false if it was not measured. The size of an earlier list
// still holds if nothing has run in the sandbox since: whatever changes its files changes its record, too.
func (e *Engine) sizeOf(li *listing, r *catalog.Record) (size snapshot.Bytes, measured bool, err error) {
	idle := li.records != nil && r.State == catalog.Ready && r.Supervisor == nil && !r.Ephemeral
	if idle && !li.measure {
		if n, ok := li.records.Usage(r); ok {
			return snapshot.Bytes(n), true, nil
		}
	}
	if li.sizes.Err() != nil {
		return -1, false, nil //nolint:nilerr // the time for sizes is over
	}
	switch size, err = e.usage(li.sizes, r); {
	case errors.Is(err, context.DeadlineExceeded):
		return -1, false, nil
	case err == nil && idle:
		li.records.SetUsage(r, int64(size))
	}
	return size, true, err
}

// isRunning reports whether a sandbox now has a supervisor, the process that owns its running container.
func (e *Engine) isRunning(ctx context.Context, r *catalog.Record) (bool, error) {
	conn, err := e.Supervise.Dial(ctx, r)
	switch {
	case errors.Is(err, supervise.ErrSilent):
		return true, nil
	case err == nil && conn != nil:
		return true, conn.Close()
	}
	return false, err
}

// usage returns how many bytes a sandbox stores beyond its base, or -1 if none of its backends can measure
// that.
func (e *Engine) usage(ctx context.Context, r *catalog.Record) (size snapshot.Bytes, err error) {
	size = -1
	for _, t := range r.Trees {
		b, berr := e.Host.BackendOf(ctx, t)
		if berr != nil {
			err = first(err, berr)
			continue
		}
		if m, ok := b.(snapshot.ChangeLister); ok {
			n, merr := m.Usage(ctx, t.Fork)
			if merr == nil {
				size = max(size, 0) + n
			} else if !errors.Is(merr, errs.ErrNotSupported) {
				err = first(err, merr)
			}
		}
	}
	return size, err
}

// DriftBudget bounds the time for detecting drift of one sandbox, or of all that [Engine.List] lists; it is
// enough for about 200,000 files in the page cache. SizeBudget bounds the time for measuring all sizes. Both
// keep snapfs ls quick.
const (
	DriftBudget = 200 * time.Millisecond
	SizeBudget  = 50 * time.Millisecond
)

// driftWalks holds one walk of the real files for each workspace, by its path. The walk finds the changes
// since the oldest live base of the workspace's sandboxes, and all of these sandboxes share its result.
type driftWalks map[string]*driftWalk

type driftWalk struct {
	since  time.Time
	walked bool
	found  []diff.Change
	err    error
}

func walksOf(records []*catalog.Record) driftWalks {
	walks := driftWalks{}
	for _, r := range records {
		t, ok := compare.WorkspaceTree(r)
		if !ok || t.Frozen || t.Taken.IsZero() {
			continue
		}
		if w := walks[r.Workspace]; w == nil {
			walks[r.Workspace] = &driftWalk{since: t.Taken}
		} else if t.Taken.Before(w.since) {
			w.since = t.Taken
		}
	}
	return walks
}

// countDrift counts how many files of the real workspace have changed since the sandbox's base was taken. For
// a live base it uses the walk that l shares for the workspace, if there is one. Drift.Known stays false
// where counting takes too long or is not possible.
func (e *Engine) countDrift(l *listing, r *catalog.Record) Drift {
	t, ok := compare.WorkspaceTree(r)
	ctx, d, w := l.drift, Drift{Since: t.Taken}, l.walks[r.Workspace]
	if !ok || t.Taken.IsZero() || ctx.Err() != nil && (w == nil || !w.walked || t.Frozen) {
		return d // the sandbox is being made, or the time is over
	}
	if w == nil || t.Frozen {
		e.countFrozen(ctx, l, r, t, &d)
		return d
	}
	if !w.walked {
		oldest := t
		oldest.Taken, w.walked = w.since, true
		w.found, _, w.err = e.Compare.RealChanges(ctx, r, oldest)
	}
	var changes []diff.Change
	for _, c := range w.found {
		if !c.New.CTime.Before(t.Taken) {
			changes = append(changes, c)
		}
	}
	if len(changes) == 0 || w.err != nil || ctx.Err() != nil {
		d.Known = len(changes) == 0 && w.err == nil
		return d
	}
	promoted, err := e.Compare.Promoted(r.Name)
	if err == nil {
		d.Known, d.Paths = true, compare.CountFiles(compare.DriftPaths(t, changes, promoted))
	}
	return d
}

// countFrozen sets d to the drift of the sandbox r, whose tree t is compared with the real one for this sandbox alone. If
// nothing has changed since its frozen base, l notes that, and sandboxes with the same base are not compared again.
func (e *Engine) countFrozen(ctx context.Context, l *listing, r *catalog.Record, t catalog.Tree, d *Drift) {
	base := frozenBase{t.Driver, t.Path, t.Base}
	if t.Frozen && l.unchanged[base] {
		d.Known = true
		return
	}
	report, err := e.Compare.DriftOfRecord(ctx, r)
	if err != nil {
		return
	}
	d.Known, d.Paths, d.Both = true, report.Files, report.Both
	if t.Frozen && l.unchanged != nil && len(report.Paths) == 0 {
		// A report leaves out the files that the sandbox itself promoted; for another sandbox they have changed.
		if promoted, err := e.Compare.Promoted(r.Name); err == nil && len(promoted) == 0 {
			l.unchanged[base] = true
		}
	}
}

// first returns err or, if err is nil, next. A caller that handles several trees thus reports one error
// instead of the same one for every tree.
func first(err, next error) error {
	if err != nil {
		return err
	}
	return next
}

// Names lists the names of all sandboxes, or of those that have one of the workspaces, sorted.
func (e *Engine) Names(workspaces ...string) ([]string, error) {
	listed := e.cat.ReadCached()
	e.cat.SaveCache(listed)
	names := make([]string, 0, len(listed.Records))
	for _, r := range listed.Records {
		if !e.removing[r.ID] && (workspaces == nil || slices.Contains(workspaces, r.Workspace)) {
			names = append(names, r.Name)
		}
	}
	return names, errors.Join(listed.Failures...)
}

// MadeUnder returns which settings of a profile the sandbox was made with, or nil if it was made without a
// profile. Errors: errs.ErrNotFound.
func (e *Engine) MadeUnder(name string) (*ProfileUse, error) {
	r, err := e.cat.Get(name)
	if err != nil {
		return nil, err
	}
	return r.Policy.Profile, nil
}

// WorkspaceOf returns the path of a sandbox's workspace. Errors: errs.ErrNotFound.
func (e *Engine) WorkspaceOf(name string) (string, error) {
	r, err := e.cat.Get(name)
	if err != nil {
		return "", err
	}
	return r.Workspace, nil
}
