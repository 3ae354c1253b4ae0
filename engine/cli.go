package engine

import (
	"context"
	"errors"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/isolate"
)

// What callers of [Engine.Run] and [Engine.Exec] need of package isolate, so
// that they depend on the engine alone.
type (
	// Command is a program to run in a sandbox.
	Command = isolate.Command
	// CommandError says that a command could not be run at all.
	CommandError = isolate.CommandError
	// Status is how a command ended.
	Status = isolate.Status
	// Size is that of a terminal.
	Size = isolate.Size
	// Level is the isolation that is in force.
	Level = isolate.Level
)

// Kind is the sentinel of package snapshot that an error of the engine stands
// for, or nil: whichever package it came from.
func Kind(err error) error {
	if err == nil {
		return nil
	}
	if kind := snapshot.KindOf(err); kind != nil {
		return kind
	}
	for _, k := range []struct{ theirs, kind error }{
		{isolate.ErrNotFound, snapshot.ErrNotFound},
		{isolate.ErrNotSupported, snapshot.ErrNotSupported},
		{isolate.ErrDenied, snapshot.ErrDenied},
		{isolate.ErrBusy, snapshot.ErrBusy},
		{isolate.ErrNoSpace, snapshot.ErrNoSpace},
		{isolate.ErrInterrupted, snapshot.ErrInterrupted},
		{isolate.ErrClosed, snapshot.ErrInterrupted},
	} {
		if errors.Is(err, k.theirs) {
			return k.kind
		}
	}
	return nil
}

// StateDir is the state directory the engine was opened on.
func (e *Engine) StateDir() string { return e.cat.Dir() }

// DataDir is where a driver keeps its data in the state directory.
func (e *Engine) DataDir(driver string) string { return e.cat.DataDir(driver) }

// Plan says which backend would hold each tree of a sandbox, and why. It makes
// nothing. Errors: those of [Engine.New].
func (e *Engine) Plan(ctx context.Context, req Request) ([]catalog.Tree, error) {
	if err := e.checkWorkspace(req.Workspace); err != nil {
		return nil, err
	}
	env, err := survey(req.Workspace, e.cat.Dir(), privileged())
	if err != nil {
		return nil, err
	}
	choices, err := e.choose(ctx, env, req)
	trees := make([]catalog.Tree, 0, len(choices))
	for _, c := range choices {
		trees = append(trees, catalog.Tree{Path: c.tree, Driver: c.driver, Reason: c.reason, Frozen: c.backend.Facts().Frozen})
	}
	return trees, err
}

// AwaitSweeper waits until no other process collects.
func (e *Engine) AwaitSweeper(ctx context.Context) error {
	for {
		lock, err := e.sweepLock()
		if err != nil {
			return err
		}
		if lock != nil {
			return lock.Close()
		}
		select {
		case <-ctx.Done():
			return &snapshot.Error{Op: "waiting for another command to clean up", Kind: snapshot.ErrInterrupted, Err: ctx.Err()}
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// DropBases removes the bases of a tree that a driver holds for later commands
// and no sandbox refers to: what [Engine.Collect] leaves as the newest. A driver
// that does not hold the tree has none.
func (e *Engine) DropBases(ctx context.Context, driver, tree string) error {
	b, err := e.backendOf(ctx, catalog.Tree{Driver: driver, Path: tree})
	if err != nil {
		return nil // it holds nothing of the tree
	}
	release, err := e.cat.Exclude()
	defer release()
	if err != nil {
		return err
	}
	used, owners, err := e.owned()
	if err != nil {
		return err
	}
	ids, _, err := b.List(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if !used[id] && !owners[catalog.Owner(string(id))] {
			if err := b.Remove(ctx, id); err != nil {
				return err
			}
		}
	}
	return sweep(ctx, b)
}
