package reconcile

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
)

// On a live base, a renamed file of the sandbox may still read the real file by its real name. A promotion of the
// rename removes that name. So the backend first copies such files into the sandbox (snapshot.Detacher).

// freezeFor freezes a sandbox while its promotion is planned. With o.execute it also copies into the sandbox the
// files that it reads from the real tree and the promotion replaces. ErrBusy: there are such and a process runs.
func (rc *Reconciler) freezeFor(ctx context.Context, h *catalog.Locked, o PlanOptions) (thaw func(), err error) {
	use, thaw, err := rc.supervise.Freeze(ctx, h)
	if err != nil || !o.execute {
		return thaw, err
	}
	err = rc.Detach(ctx, h.Record, use, o)
	if use == snapshot.InUse && errors.Is(err, errs.ErrBusy) {
		thaw()
		thaw = func() {} // the lock prevents a new process
		if ierr := rc.supervise.MustBeIdle(ctx, h, "promoting from"); ierr == nil {
			err = rc.Detach(ctx, h.Record, snapshot.Idle, o)
		} else if !errors.Is(ierr, errs.ErrBusy) {
			err = ierr
		}
	}
	if err != nil {
		thaw()
		return nil, err
	}
	return thaw, nil
}

// Detach copies into the sandbox those renamed files that it still reads from the real tree and that a promotion with
// the options o will change there. The caller has frozen the sandbox, or nothing runs in it. Errors: ErrBusy if use is
// InUse and there is such a file; ErrConflict if the real tree has lost a renamed directory, in which the sandbox
// would then see what the promotion creates there.
func (rc *Reconciler) Detach(ctx context.Context, rec *catalog.Record, use snapshot.Use, o PlanOptions) error {
	var places changedPaths
	for _, t := range rec.Trees {
		if t.Frozen || hostfs.Vanished(t, rec.Workspace) {
			continue
		}
		b, err := rc.host.BackendOf(ctx, t)
		if err != nil {
			return err
		}
		r, ok := b.(snapshot.Detacher)
		if !ok {
			continue
		}
		list, err := r.Borrowed(ctx, t.Fork)
		if err == nil && len(list) > 0 && places == nil {
			places, err = rc.aboutToChange(ctx, rec, o)
		}
		if err != nil {
			return err
		}
		list = slices.DeleteFunc(list, func(one snapshot.Borrowed) bool {
			return !places.overlap(filepath.Join(t.Path, one.From), one.Tree)
		})
		if len(list) == 0 {
			continue
		}
		if err := compare.RefuseLost(rec, t, list); err != nil {
			return err
		}
		if use == snapshot.InUse {
			return renamedBusy(rec, t, list)
		}
		if err := rc.detachIn(ctx, t, b, r, list); err != nil {
			return detachNoSpace(rec, err)
		}
	}
	return nil
}

// detachIn copies the renamed files in list, of one tree, into the sandbox's fork and syncs the fork.
func (rc *Reconciler) detachIn(ctx context.Context, t catalog.Tree, b snapshot.Backend, r snapshot.Detacher, list []snapshot.Borrowed) error {
	if err := fault.Point(ctx, "detach renamed files"); err != nil {
		return errs.With("promoting from", t.Path, err)
	}
	err := r.Detach(ctx, t.Fork, list, func(do func(root int) error) error {
		f, err := rc.OpenFork(ctx, t, t.Path)
		if err != nil {
			return err
		}
		defer f.Close()
		return do(int(f.Dir.Fd()))
	})
	if s, ok := b.(snapshot.Syncer); ok && err == nil {
		err = s.Sync(ctx, t.Fork)
	}
	return err
}

// detachNoSpace adds to an ErrNoSpace of Detach the command that increases the disk limit; others stay.
func detachNoSpace(rec *catalog.Record, err error) error {
	if !errors.Is(err, errs.ErrNoSpace) {
		return err
	}
	e := &errs.Error{
		Op: "promoting from", Path: rec.Name, Kind: errs.ErrNoSpace,
		Err: fmt.Errorf("its renamed files that are still read from the real tree must be copied into it first: %w", err),
	}
	for _, limit := range []struct {
		name string
		set  bool
	}{{"disk", rec.Policy.Limits.Disk > 0}, {"inodes", rec.Policy.Limits.Inodes > 0}} {
		if limit.set {
			e.Hints = append(e.Hints, "snapfs limits "+rec.Name+" --set "+limit.name+"=none")
		}
	}
	if len(e.Hints) == 0 {
		e.Hints = []string{"snapfs gc"}
	}
	return e
}

// renamedBusy returns the error for renamed files that cannot be copied into a sandbox while a process runs.
func renamedBusy(rec *catalog.Record, t catalog.Tree, list []snapshot.Borrowed) error {
	paths := make([]string, len(list))
	for i, one := range list {
		paths[i] = filepath.Join(t.Path, one.Path)
	}
	slices.Sort(paths)
	return &errs.Error{
		Op: "promoting from", Path: rec.Name, Kind: errs.ErrBusy,
		Err:   errors.New("it has renamed " + hostfs.Several(paths) + " and still reads the real files, and a command is running in it"),
		Hints: []string{"snapfs stop " + rec.Name},
	}
}

// changedPaths are the absolute paths that a promotion will change, sorted.
type changedPaths []string

// aboutToChange returns the paths of the real tree that a promotion with the options o will change.
func (rc *Reconciler) aboutToChange(ctx context.Context, rec *catalog.Record, o PlanOptions) (changedPaths, error) {
	only, err := compare.PatternsOf(rec.Workspace, o.Only)
	if err != nil {
		return nil, err
	}
	c, err := rc.compare.Changes(ctx, rec)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	places := changedPaths{}
	for _, p := range c.Parts {
		for i := range p.Changes {
			abs := filepath.Join(p.Root, p.Changes[i].Path)
			if p.Changes[i].TimeOnly() || !only.Matches(abs) {
				continue
			}
			if o.Target != "" && hostfs.Within(abs, rec.Workspace) {
				abs = filepath.Join(o.Target, hostfs.Relative(abs, rec.Workspace))
			}
			places = append(places, abs)
		}
	}
	slices.Sort(places)
	return places, nil
}

// overlap reports whether the list has path or, if tree is set, a path below it.
func (c changedPaths) overlap(path string, tree bool) bool {
	if _, found := slices.BinarySearch(c, path); found {
		return true
	}
	inside := strings.TrimSuffix(path, "/") + "/"
	i, _ := slices.BinarySearch(c, inside)
	return tree && i < len(c) && strings.HasPrefix(c[i], inside)
}
