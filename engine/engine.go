// Package engine is the public face of snapfs: it makes sandboxes, runs commands in them, and removes them.
// It composes the packages in the folders of engine, and imports no backend.
//
// A sandbox is a copy of the real machine's environment: a fork of each of its trees, the policy it runs
// under, and its processes. [Engine.Run] makes one for a command and returns it as a [Session]; [Engine.New]
// makes a permanent one. If a snapfs process is killed, the next [Open] finds and repairs its unfinished
// work, and reports that through Config.Notice.
package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/snapfs/snapfs/engine/admission"
	"github.com/snapfs/snapfs/engine/baseline"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/egress"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/keypoint"
	"github.com/snapfs/snapfs/engine/leak"
	"github.com/snapfs/snapfs/engine/merge"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/engine/sandbox"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/stages"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/engine/supervise/connpool"
	"github.com/snapfs/snapfs/engine/supervise/standby"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/limits"
)

// A Config is the argument of [Open]: the state directory, the backends, and the helper programs and
// callbacks that a program such as cmd/snapfs gives the engine.
type Config struct {
	// State is the state directory; see [StateDir] for the usual one.
	State string
	// Drivers are the backends, best first.
	Drivers []snapshot.Driver
	// Server returns the command line of the program that serves FUSE mounts of forks. nil means
	// the program snapfs-fuse beside this one.
	Server func() ([]string, error)
	// Notice is called with a sentence for everything that was repaired. It may be nil.
	Notice func(string)
	// Supervisor is the command that starts a supervisor: the program and its first arguments, to
	// which the state directory and the sandbox's name are added.
	Supervisor []string
	// Standby starts the supervisors, in a program that starts many; nil: Supervisor does.
	Standby *standby.Pool
	// Connections holds connections to supervisors, in a program that runs many commands. It may be nil.
	Connections *connpool.Pool
	// Sweeper is the command that starts a collection in the background, given like
	// Supervisor. If it is empty, collections run in this process.
	Sweeper []string
	// Background deletes the files of removed sandboxes later, in a program that removes many; nil: each removal does.
	Background sandbox.Background
	// Later leaves the removal of expired sandboxes to the sweeper, for commands that only
	// read. Until then [Engine.List] and [Engine.Names] leave them out.
	Later bool
	// Probe is the command that runs prove.Run inside a sandbox: a program, which the engine
	// copies into the sandbox, and its first arguments.
	Probe []string
	// SelfTest returns the function that tests the isolation of a started sandbox, such as
	// workflow/selftest.For. Without it, a sandbox whose policy requires a self-test cannot
	// start.
	SelfTest func(e *Engine) supervise.SelfTest
	// Expire removes expired leftovers of workflows during a collection, as
	// workflow/transfer.Expire does. It may be nil.
	Expire func(e *Engine) error
	// Witness returns the witness of the events of a state directory. It may be nil.
	Witness func(cat *catalog.Catalog) events.Witness
	// Manifest records the changed files of a sandbox before they are promoted. It may be nil.
	Manifest func(ctx context.Context, e *Engine, rec *catalog.Record) error
	// Proxy returns the command of the network proxy, a program that calls edge.Serve. The
	// engine calls it when a sandbox needs a proxy; nil means that there is none.
	Proxy func() ([]string, error)
	// IDMapper returns the command of the id-mapping FUSE server, a program that calls
	// idmap.Serve, for filesystems without id-mapped mounts. The engine calls it when a
	// sandbox needs one; nil means that there is none.
	IDMapper func() ([]string, error)
}

// An Engine makes, runs, changes and removes the sandboxes of one state directory. Its exported fields are
// the packages that it is composed of, for callers that need one directly. It is safe for concurrent use, by
// any number of processes.
type Engine struct {
	// Host chooses and opens the backends of this machine's trees.
	Host *hostfs.Host
	// Sandboxes makes, changes and removes sandboxes that have no processes.
	Sandboxes *sandbox.Store
	// Baseline reads and writes the originals of files that sandboxes changed.
	Baseline *baseline.Recorder
	// Compare lists changes and drift.
	Compare *compare.Comparer
	// Egress runs the network proxies of sandboxes and reads their logs.
	Egress *egress.Gateway
	// Supervise runs commands in sandboxes, and limits and ends them.
	Supervise *supervise.Manager
	// KeyPoints takes snapshots of sandboxes by itself.
	KeyPoints *keypoint.Taker
	// Stages reads and writes the records of promotions through stages.
	Stages *stages.Store
	// Reconcile promotes and applies changes, refreshes sandboxes, and undoes promotions.
	Reconcile *reconcile.Reconciler

	cat    *catalog.Catalog
	events *events.Log
	notice func(string)
	expire func(*Engine) error
	probe  []string
	// removing holds the ids of the sandboxes that the sweeper is about to remove.
	removing map[string]bool
}

// Open opens a state directory, creates it if it is missing, and completes or undoes the unfinished work of
// killed snapfs processes. Then it ends expired sandboxes, unless a repair failed. A promotion that waits for
// its unmounted disk is no error; see [reconcile.Reconciler.Unfinished]. Cost: a few system calls when there
// is nothing to repair.
func Open(ctx context.Context, c Config) (*Engine, error) {
	cat, err := catalog.Open(c.State)
	if err != nil {
		return nil, err
	}
	cat.Rehearse(fault.Of(ctx))
	e := compose(cat, c)
	if err := e.mend(ctx, false); err != nil {
		return e, err // unmended work may need a sandbox that reap would remove
	}
	if c.Later && len(c.Sweeper) > 0 {
		return e, e.reapLater(ctx)
	}
	return e, e.reap(ctx)
}

// compose builds an Engine on the catalogue cat. It makes the packages of the engine in order of dependency:
// each gets those made before it.
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
	var witness func() events.Witness
	if c.Witness != nil {
		witness = sync.OnceValue(func() events.Witness { return c.Witness(cat) })
	}
	e.events = events.New(cat.Dir(), notice, witness)
	e.events.RedactBy((&leak.Redactor{Catalog: cat}).Redact)
	e.Host = hostfs.New(cat, c.Drivers, c.Server, notice)
	e.Sandboxes = sandbox.New(cat, e.Host, notice, e.events, c.Sweeper, c.Background, collect)
	e.Baseline = baseline.New(cat, e.Host, merge.Holds, notice)
	e.Compare = compare.New(cat, e.Host, e.Baseline, e.Sandboxes, notice, e.events)
	e.Egress = &egress.Gateway{Catalog: cat, Events: e.events, Program: c.Proxy}
	e.KeyPoints = &keypoint.Taker{Catalog: cat, Host: e.Host, Sandboxes: e.Sandboxes, Compare: e.Compare, Events: e.events, Notice: notice}
	parts := supervise.Parts{
		Catalog: cat, Host: e.Host, Sandboxes: e.Sandboxes, Baseline: e.Baseline, Compare: e.Compare, Egress: e.Egress, KeyPoints: e.KeyPoints,
		Book:   admission.Open(filepath.Join(c.State, "admission"), c.State, supervise.ApplyCeiling),
		Notice: notice, Events: e.events, Supervisor: c.Supervisor, Standby: c.Standby, Connections: c.Connections, Probe: c.Probe, IDMapper: c.IDMapper, RemoveExpired: e.finishUnlessPromoting,
	}
	if c.SelfTest != nil {
		parts.SelfTest = func(ctx context.Context, rec *catalog.Record, h *supervise.Supervisor, program func() (*os.File, error)) (*catalog.Proof, error) {
			return c.SelfTest(e)(ctx, rec, h, program)
		}
	}
	e.Supervise = supervise.New(parts)
	e.Stages = &stages.Store{Catalog: cat}
	e.Reconcile = reconcile.New(reconcile.Parts{
		Catalog: cat, Host: e.Host, Sandboxes: e.Sandboxes, Baseline: e.Baseline, Compare: e.Compare,
		Supervise: e.Supervise, Stages: e.Stages, KeyPoints: e.KeyPoints, Notice: notice, Events: e.events,
		Manifest: func(ctx context.Context, rec *catalog.Record) error {
			if c.Manifest == nil {
				return nil
			}
			return c.Manifest(ctx, e, rec)
		},
	})
	return e
}

// Catalog returns the catalogue, which has an entry for each sandbox of the state directory.
func (e *Engine) Catalog() *catalog.Catalog { return e.cat }

// Events returns the log of events, such as started commands, of the state directory, to append to or read.
func (e *Engine) Events() *events.Log { return e.events }

// Notice passes a sentence for the user, such as that something was repaired, to the callback Config.Notice.
func (e *Engine) Notice(text string) { e.notice(text) }

// Probe returns Config.Probe: the command line of the program that tries, inside a sandbox, to break out of
// it in a self-test.
func (e *Engine) Probe() []string { return e.probe }

// StateDir returns the usual state directory, in which snapfs stores everything about its sandboxes:
// $SNAPFS_HOME if set, else /var/lib/snapfs for root and $XDG_STATE_HOME/snapfs for everyone else, by default
// ~/.local/state/snapfs.
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

// IsState reports whether dir is a state directory of snapfs.
func IsState(dir string) bool { return catalog.Is(dir) }

// StateDir returns the state directory that the engine was opened on.
func (e *Engine) StateDir() string { return e.cat.Dir() }

// DataDir returns the directory inside the state directory that holds the data of the named backend driver.
func (e *Engine) DataDir(driver string) string { return e.cat.DataDir(driver) }

// mend completes or undoes the unfinished work of dead snapfs processes. Work that it cannot repair now it
// reports as a notice and leaves to the next command; other sandboxes stay usable. thorough also recognises a
// dead process whose process id now belongs to another process, at 15 µs for each running command.
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
		return nil // another process works on it; the next command checks again
	case err == nil && h.ID != i.ID: // another sandbox has the name
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
	return errors.Join(err, i.End()) // the trash holds what cannot be freed yet
}

// mendHeld completes or undoes an operation on an existing sandbox whose process died. The intent i, which
// the process had stored in the catalogue before it began, names the operation; mendHeld removes i. The
// caller holds h, the sandbox's lock.
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
			break // it has another supervisor by now
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
		err = e.Supervise.SyncEnded(ctx, h)
	}
	if err != nil {
		return err
	}
	return i.End()
}

func killed(i *catalog.Intent) string {
	return "the snapfs process " + strconv.Itoa(i.Owner.PID) + " was killed"
}
