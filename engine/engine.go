// Package engine makes sandboxes, runs things in them and takes them away. It
// is the only package that composes the others: it asks the catalogue for
// names, a backend for trees, isolate for processes, diff for changes and
// promote for the way back, and imports no backend.
//
// A sandbox is a copy of the real machine's environment: a fork of each of
// its trees, the policy it runs under, and its processes. [Engine.Run] makes
// one for a command and hands it over as a [Session]; [Engine.New] makes one
// to keep. What a killed command leaves behind is found and mended by the next
// [Open], which says so through Config.Notice.
package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/snapfs/snapfs/engine/admission"
	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/egress"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/stages"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/limits"
)

// Config is what an Engine is opened with.
type Config struct {
	// State is the state directory; see [StateDir] for the usual one.
	State string
	// Drivers are the backends, best first.
	Drivers []snapshot.Driver
	// Notice is told, in a sentence, of everything that was mended. May be nil.
	Notice func(string)
	// Keeper is how to start a keeper: the program and its first arguments,
	// to which the state directory and the sandbox's name are added.
	Keeper []string
	// Sweeper is how to start a cleaner in the background, in the same way;
	// when empty, cleaning happens at once.
	Sweeper []string
	// Later: sandboxes whose end has come are ended by the sweeper, for who only looks and
	// is not to wait for that. Until they are gone, [Engine.List] and [Engine.Names] leave
	// out those that are to be removed.
	Later bool
	// Probe is how to run prove.Run in a sandbox: a program, of which a copy is handed
	// over, and its first arguments. Without it no wall can be tried.
	Probe []string
	// SelfTest returns what tries the walls of a started sandbox from inside, as
	// workflow/selftest.For does. Without it no policy may ask for that.
	SelfTest func(e *Engine) supervise.SelfTest
	// Expire removes expired leftovers of workflows while the engine collects, as
	// workflow/transfer.Expire does. May be nil.
	Expire func(e *Engine) error
	// Edge answers how to start the process at the edge of an allowed network: the
	// program, which calls edge.Serve. It is asked when one is needed; nil: there is
	// none to be had.
	Edge func() ([]string, error)
	// Shift answers how to start the process that shows a tree whose filesystem has no
	// id-mapped mounts: the program, which calls shift.Serve. As Edge.
	Shift func() ([]string, error)
}

// An Engine works on one state directory. Its fields are the parts that it is
// composed of. It is safe for concurrent use, by any number of processes.
type Engine struct {
	// Host chooses and opens the backends of this machine's trees.
	Host *hostfs.Host
	// Sandboxes makes, changes and removes sandboxes that have no processes.
	Sandboxes *sandbox.Store
	// Baseline has what the base of a sandbox held.
	Baseline *baseline.Recorder
	// Compare lists changes and drift.
	Compare *compare.Comparer
	// Egress has what sandboxes reached on the network, and were refused.
	Egress *egress.Gateway
	// Supervise runs commands in sandboxes, limits and ends them.
	Supervise *supervise.Manager
	// Stages has the records of promotions through stages.
	Stages *stages.Store
	// Reconcile promotes, applies, refreshes and undoes.
	Reconcile *reconcile.Reconciler

	cat    *catalog.Catalog
	notice func(string)
	expire func(*Engine) error
	probe  []string
	// going are the ids of the sandboxes that the sweeper is about to remove.
	going map[string]bool
}

// Open opens a state directory, making it where there is none, and mends what
// killed commands left; then it ends the sandboxes whose time has come, unless something
// could not be mended. What waits for a disk that is not mounted is no error: see
// [Engine.Unfinished]. Cost: a few system calls when there is nothing to mend.
func Open(ctx context.Context, c Config) (*Engine, error) {
	cat, err := catalog.Open(c.State)
	if err != nil {
		return nil, err
	}
	cat.Rehearse(fault.Of(ctx))
	e := compose(cat, c)
	if err := e.mend(ctx, false); err != nil {
		return e, err // what is not mended may need what would be removed
	}
	if c.Later && len(c.Sweeper) > 0 {
		return e, e.reapLater(ctx)
	}
	return e, e.reap(ctx)
}

// compose makes an Engine of its parts, the lowest first.
func compose(cat *catalog.Catalog, c Config) *Engine {
	notice := c.Notice
	if notice == nil {
		notice = func(string) {}
	}
	e := &Engine{cat: cat, notice: notice, probe: c.Probe, expire: c.Expire}
	collect := func(ctx context.Context) error {
		_, err := e.Collect(ctx)
		return err
	}
	e.Host = hostfs.New(cat, c.Drivers, notice)
	e.Sandboxes = sandbox.New(cat, e.Host, notice, c.Sweeper, collect)
	e.Baseline = baseline.New(cat, e.Host, notice)
	e.Compare = compare.New(cat, e.Host, e.Baseline, e.Sandboxes, notice)
	e.Egress = egress.New(cat, c.Edge)
	parts := supervise.Parts{
		Catalog: cat, Host: e.Host, Sandboxes: e.Sandboxes, Baseline: e.Baseline, Compare: e.Compare, Egress: e.Egress,
		Book:   admission.Open(filepath.Join(c.State, "admission"), c.State, supervise.BeneathCeiling),
		Notice: notice, Keeper: c.Keeper, Probe: c.Probe, Shift: c.Shift, WhenOver: e.finishUnlessPromoting,
	}
	if c.SelfTest != nil {
		parts.SelfTest = c.SelfTest(e)
	}
	e.Supervise = supervise.New(parts)
	e.Stages = stages.New(cat)
	e.Reconcile = reconcile.New(reconcile.Parts{
		Catalog: cat, Host: e.Host, Sandboxes: e.Sandboxes, Baseline: e.Baseline, Compare: e.Compare,
		Supervise: e.Supervise, Stages: e.Stages, Notice: notice,
	})
	return e
}

// Catalog has the records of all sandboxes.
func (e *Engine) Catalog() *catalog.Catalog { return e.cat }

// Notice reports a sentence to the user, by Config.Notice.
func (e *Engine) Notice(text string) { e.notice(text) }

// Probe is Config.Probe.
func (e *Engine) Probe() []string { return e.probe }

// StateDir is where snapfs keeps its state: $SNAPFS_HOME where that is set,
// else /var/lib/snapfs for root and $XDG_STATE_HOME/snapfs, by default
// ~/.local/state/snapfs, for everyone else.
func StateDir() (string, error) {
	if dir := os.Getenv("SNAPFS_HOME"); dir != "" {
		return filepath.Abs(dir)
	}
	if os.Geteuid() == 0 {
		return "/var/lib/snapfs", nil
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "snapfs"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", &errs.Error{
			Op: "looking for the state directory", Kind: errs.ErrNotFound, Err: err,
			Hints: []string{"export SNAPFS_HOME=DIRECTORY"},
		}
	}
	return filepath.Join(home, ".local/state/snapfs"), nil
}

// IsState reports whether a directory is a state directory: [Open] makes one where
// there is none.
func IsState(dir string) bool { return catalog.Is(dir) }

// StateDir is the state directory the engine was opened on.
func (e *Engine) StateDir() string { return e.cat.Dir() }

// DataDir is where a driver keeps its data in the state directory.
func (e *Engine) DataDir(driver string) string { return e.cat.DataDir(driver) }

// mend takes back, or completes, what processes that are gone were in the
// middle of. What cannot be mended now is told, and left for the next time: it
// must not keep a command from other sandboxes.
func (e *Engine) mend(ctx context.Context, thorough bool) error {
	stale, err := e.cat.Stale(thorough)
	if err != nil {
		return err
	}
	if len(stale) > 0 || thorough {
		if err := limits.Sweep(ctx); err != nil {
			e.notice("control groups of killed commands are not removed yet: " + err.Error())
		}
	}
	for _, i := range stale {
		if err := e.mendOne(ctx, &i); err != nil {
			e.notice("what killed commands left of " + i.Name + " is not mended yet: " + err.Error())
		}
	}
	return e.Reconcile.RecoverPromotions(ctx)
}

func (e *Engine) mendOne(ctx context.Context, i *catalog.Intent) error {
	h, err := e.cat.TryLock(i.Name)
	switch {
	case errors.Is(err, errs.ErrBusy):
		return nil // somebody mends it, or goes on with it: the next command looks again
	case err == nil && h.ID != i.ID: // another one has the name
		h.Release()
	case err == nil:
		defer h.Release()
		return e.mendHeld(ctx, i, h)
	case !errors.Is(err, errs.ErrNotFound):
		return err
	}
	switch i.What {
	case catalog.Making:
		e.notice(killed(i) + " while it made " + i.Name + ": nothing of it is left")
	case catalog.Removing:
		e.notice(killed(i) + " while it removed " + i.Name + ": the rest is removed")
	}
	err = errors.Join(e.cat.Unclaim(i.ID), e.Sandboxes.Reclaim(ctx, i.ID))
	return errors.Join(err, i.End()) // what cannot be given back yet is in the trash
}

// mendHeld mends what was done to a sandbox that is there.
func (e *Engine) mendHeld(ctx context.Context, i *catalog.Intent, h *catalog.Locked) error {
	if !i.Stands() {
		return nil // another command was quicker
	}
	var err error
	switch {
	case h.Ephemeral || h.State == catalog.Creating:
		e.notice(killed(i) + " while " + i.Name + " was at work: it is removed")
		err = e.Sandboxes.DiscardHeld(ctx, h)
	case i.What == catalog.Supervising:
		if h.Supervisor != nil && *h.Supervisor != i.Owner && proc.Alive(*h.Supervisor) {
			break // it has another one by now
		}
		e.notice(killed(i) + " while " + i.Name + " ran: its processes are gone, its files are kept")
		err = e.Supervise.Sync(ctx, h)
	case i.What == catalog.Changing:
		e.notice(killed(i) + " while it changed the states of " + i.Name + ": what was half done is removed")
		if err = e.Supervise.FinishRollback(ctx, h); err == nil {
			err = e.Sandboxes.Tidy(ctx, h.Record)
		}
	case i.What == catalog.Removing:
		e.notice(killed(i) + " before it removed " + i.Name + ": it is still there")
	}
	if err != nil {
		return err
	}
	return i.End()
}

func killed(i *catalog.Intent) string {
	return "the snapfs process " + strconv.Itoa(i.Owner.PID) + " was killed"
}
