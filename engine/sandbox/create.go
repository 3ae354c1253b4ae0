package sandbox

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

// End removes the intent i, which announced an operation in the catalogue, after that operation. If that
// fails, End reports a notice, and the next command removes the intent.
func (sb *Store) End(i *catalog.Intent) {
	if err := i.End(); err != nil {
		sb.notice("done, but the intent could not be removed: " + err.Error())
	}
}

// Create creates the sandbox that req asks for, and returns its record and intent. The caller ends the
// intent; that of an ephemeral sandbox when it is removed or made persistent. After an error nothing is left.
func (sb *Store) Create(ctx context.Context, req hostfs.Request, ephemeral bool) (*catalog.Record, *catalog.Intent, error) {
	rec, intent, err := sb.Intend(req, ephemeral)
	if err != nil {
		return nil, nil, err
	}
	if _, err := sb.Make(ctx, req, rec); err != nil {
		sb.EndIfGone(intent, rec, err)
		return nil, nil, err
	}
	return rec, intent, nil
}

// Intend begins the creation of a sandbox: it makes the record in memory and announces the creation in the catalogue.
// An ephemeral sandbox is removed when its command ends. If this process is killed, the next command removes
// everything made since. The caller ends the intent.
func (sb *Store) Intend(req hostfs.Request, ephemeral bool) (*catalog.Record, *catalog.Intent, error) {
	rec := newRecord(req, ephemeral)
	intent, err := sb.cat.Begin(catalog.Making, rec.Name, rec.ID)
	return rec, intent, err
}

// Make creates the sandbox that rec describes, after [Store.Intend]: its directory and the forks of its
// trees. Then it calls req.Fill, if set, which writes files into the trees. If filesystems are mounted or
// unmounted meanwhile it starts over, but not once Fill was called, which may consume its source. After an
// error mostly nothing is left; see [Store.EndIfGone]. It returns the environment that the sandbox was made for.
func (sb *Store) Make(ctx context.Context, req hostfs.Request, rec *catalog.Record) (*hostfs.Environment, error) {
	if err := errors.Join(hostfs.ForProcesses(req.Policy.Limits).Check(), TimesFit(req.Policy.Limits), sb.host.CheckWorkspace(req.Workspace)); err != nil {
		return nil, err
	}
	filling := false
	if fill := req.Fill; fill != nil {
		req.Fill = func(ctx context.Context, rec *catalog.Record) error {
			filling = true
			return fill(ctx, rec)
		}
	}
	var tries hostfs.MountRetry
	defer tries.Close()
	for {
		env, err := hostfs.Survey(req.Workspace, sb.cat.Dir(), hostfs.Privileged())
		if err == nil {
			err = sb.makeIn(ctx, env, req, rec)
		}
		if err == nil || filling || !tries.Again(err) {
			return env, err
		}
	}
}

// makeIn creates the sandbox that rec describes, with a fork of each filesystem that env lists as mounted. It
// chooses a backend for each.
func (sb *Store) makeIn(ctx context.Context, env *hostfs.Environment, req hostfs.Request, rec *catalog.Record) error {
	choices, err := sb.host.Choose(ctx, env, req)
	if k := req.Policy.KeyPoints; err == nil && k != nil && k.KeepSize > 0 {
		err = hostfs.CheckMeter(ctx, choices)
	}
	if err == nil {
		err = sb.host.Estimate(ctx, choices) // last: it may take a minute
	}
	if err != nil {
		return err
	}
	rec.Trees, rec.BareWorkspace = nil, env.Shows(req.Workspace)
	for _, c := range choices {
		rec.Trees = append(rec.Trees, catalog.Tree{
			Path: c.Tree, Driver: c.Driver, Reason: c.Reason,
			Base: rec.NewSnapshot(), Fork: rec.NewFork(), Mounted: env.IsMount(c.Tree),
		})
		sb.host.Remember(c)
		if err := sb.host.RecordPlace(c); err != nil {
			return err
		}
	}
	return sb.Register(ctx, rec, func() error { return sb.forkTrees(ctx, rec, choices) }, req.Fill)
}

// newRecord returns the catalogue record of the sandbox that req asks for, with a new id and in the state Creating.
// An ephemeral sandbox is removed when its command ends. newRecord does not store the record.
func newRecord(req hostfs.Request, ephemeral bool) *catalog.Record {
	rec := &catalog.Record{
		ID: catalog.NewID(), Name: req.Name, State: catalog.Creating, Created: time.Now(),
		Workspace: req.Workspace, Ephemeral: ephemeral, Policy: req.Policy, Untouched: !ephemeral && req.Fill == nil,
	}
	rec.Policy.Direct = nil // it is about jobs
	if !ephemeral || req.Policy.Limits.Timed() {
		rec.RecordAge(catalog.Now())
	}
	if rec.Name == "" {
		rec.Name = catalog.NameFor(req.Workspace, rec.ID)
	}
	return rec
}

// Register enters the sandbox of rec in the catalogue, which claims its name, and makes it ready. In between
// it calls grow, which creates the forks, and then fill if that is not nil. After an error nothing is left.
// It excludes garbage collection while grow runs; during fill the record already protects the forks.
func (sb *Store) Register(ctx context.Context, rec *catalog.Record, grow func() error, fill func(context.Context, *catalog.Record) error) error {
	if err := sb.cat.Create(rec); err != nil {
		return err
	}
	release, err := sb.cat.Share()
	if err == nil {
		defer release() // may be called twice
		if !rec.Ephemeral {
			err = sb.MakeTmp(rec)
		}
	}
	if err == nil {
		err = grow()
	}
	if err == nil && fill != nil {
		if err = sb.cat.Update(rec); err == nil {
			release()
			err = fill(ctx, rec)
		}
	}
	if err == nil {
		rec.State = catalog.Ready
		if !rec.Ephemeral {
			err = sb.cat.NoteEnd(rec, catalog.Now())
		}
	}
	if err == nil {
		if !rec.Ephemeral || sharesBase(rec) {
			err = sb.cat.Update(rec)
		}
	}
	made := newEvent(rec)
	if err == nil {
		err = sb.events.Before(made)
	}
	if err != nil {
		release() // discarding may collect
		return errors.Join(err, sb.Discard(context.WithoutCancel(ctx), rec))
	}
	sb.events.Append(made)
	return nil
}

// newEvent returns the event for the event log that announces the new sandbox of rec.
func newEvent(rec *catalog.Record) events.Event {
	made := events.Data{Workspace: rec.Workspace, Ephemeral: rec.Ephemeral, Origin: rec.Origin, Evidence: rec.Policy.Evidence}
	for _, t := range rec.Trees {
		if !slices.Contains(made.Backends, t.Driver) {
			made.Backends = append(made.Backends, t.Driver)
		}
	}
	return events.Event{Type: events.SandboxCreated, Subject: rec.Name, SandboxID: rec.ID, Unwitnessed: !rec.Policy.Evidence, Data: made}
}

// MakeTmp creates the host directory that a persistent sandbox's processes see as /tmp. An existing one is no
// error.
func (sb *Store) MakeTmp(rec *catalog.Record) error {
	dir := sb.host.Tmp(rec)
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = os.Chmod(dir, 0o777|os.ModeSticky) // the mode of /tmp, whatever the umask
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return errs.With("making", dir, err)
	}
	return nil
}

// forkTrees makes the forks of a new sandbox's trees, all at once, and trees that one backend can clone
// atomically at one instant. It leaves out a tree that was unmounted meanwhile or can no longer be overlaid,
// unless the workspace lies in it.
func (sb *Store) forkTrees(ctx context.Context, rec *catalog.Record, choices []hostfs.Choice) error {
	failures := make([]error, len(choices))
	var wg sync.WaitGroup
	for _, group := range groupByInstant(choices) {
		if first := group[0]; len(choices) == 1 || len(group) == 1 && !choices[first].Backend.Facts().Flushes {
			failures[first] = CaptureAndFork(ctx, choices[first].Backend, rec, &rec.Trees[first])
			continue
		}
		wg.Go(func() { sb.forkTogether(ctx, rec, choices, group, failures) })
	}
	wg.Wait()
	var there []catalog.Tree
	for i, t := range rec.Trees {
		passing := errors.Is(failures[i], errs.ErrNotFound) || errors.Is(failures[i], errs.ErrNotSupported)
		if passing && !hostfs.Within(rec.Workspace, t.Path) {
			failures[i] = nil
			continue
		}
		there = append(there, t)
	}
	rec.Trees = there
	return errors.Join(failures...)
}

// groupByInstant divides choices, the chosen backend of each tree, into groups of trees that one backend can
// clone at one instant. A tree without such a backend is a group of its own. The result holds indexes of
// choices.
func groupByInstant(choices []hostfs.Choice) (groups [][]int) {
	at := map[string]int{}
	for i, c := range choices {
		if t, ok := c.Backend.(snapshot.AtomicCloner); ok && len(choices) > 1 {
			instant, err := t.Instant(snapshot.Tree{Path: c.Tree})
			if g, known := at[instant]; known {
				groups[g] = append(groups[g], i)
				continue
			}
			if err == nil {
				at[instant] = len(groups)
			}
		}
		groups = append(groups, []int{i})
	}
	return groups
}

// forkTogether makes the forks of the trees with the indexes group at one instant. If the backend cannot, it
// reports a notice and forks them one by one. It stores the error of each tree in failures.
func (sb *Store) forkTogether(ctx context.Context, rec *catalog.Record, choices []hostfs.Choice, group []int, failures []error) {
	var trees []snapshot.Cloning
	for _, i := range group {
		t := &rec.Trees[i]
		trees = append(trees, snapshot.Cloning{Tree: snapshot.Tree{Path: t.Path}, ID: t.Base, Fork: t.Fork})
	}
	b, ok := choices[group[0]].Backend.(snapshot.AtomicCloner)
	var bases []snapshot.Snapshot
	err := errs.ErrNotSupported
	if ok && len(group) > 1 {
		if bases, err = b.CloneAtomically(ctx, trees); errors.Is(err, errs.ErrNotSupported) {
			sb.notice("not captured at one instant: " + paths(trees) + ": " + err.Error())
		}
	}
	for n, i := range group {
		switch {
		case err == nil:
			failures[i] = recordBase(ctx, choices[i].Backend, rec, &rec.Trees[i], bases[n])
		case errors.Is(err, errs.ErrNotSupported):
			failures[i] = CaptureAndFork(ctx, choices[i].Backend, rec, &rec.Trees[i])
		default:
			failures[i] = err
		}
	}
}

// paths returns the paths of the trees that are cloned, as one text for an error message.
func paths(trees []snapshot.Cloning) string {
	var all []string
	for _, t := range trees {
		all = append(all, t.Tree.Path)
	}
	return strings.Join(all, ", ")
}

// CaptureAndFork makes the base and the fork of the tree t for the sandbox of rec, under the ids that t has,
// sets the fork's disk limit, and stores the base in t.
func CaptureAndFork(ctx context.Context, b snapshot.Backend, rec *catalog.Record, t *catalog.Tree) error {
	var base snapshot.Snapshot
	var err error
	if c, ok := b.(snapshot.Cloner); ok {
		base, _, err = c.Clone(ctx, snapshot.Tree{Path: t.Path}, t.Base, t.Fork)
	} else if base, err = b.Capture(ctx, snapshot.Tree{Path: t.Path}, t.Base); err == nil {
		_, err = b.Fork(ctx, base.ID, t.Fork)
	}
	if err != nil {
		return err
	}
	return recordBase(ctx, b, rec, t, base)
}

// recordBase stores base in t as the base of the tree's new fork, and sets the disk limit of that fork if the
// sandbox's policy has one.
func recordBase(ctx context.Context, b snapshot.Backend, rec *catalog.Record, t *catalog.Tree, base snapshot.Snapshot) error {
	if hostfs.LimitsDisk(rec.Policy.Limits) {
		if err := limitFork(ctx, b, t.Fork, rec.ID, rec.Policy.Limits); err != nil {
			return err
		}
	}
	t.Base, t.Taken, t.Frozen = base.ID, base.Taken, base.Frozen
	return nil
}

// sharesBase reports whether one of the sandbox's bases was captured for another sandbox: a backend may
// return an older snapshot if nothing has changed since.
func sharesBase(rec *catalog.Record) bool {
	for _, t := range rec.Trees {
		if !rec.Owns(t.Base) {
			return true
		}
	}
	return false
}
