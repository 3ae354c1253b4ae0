//go:build linux

// Package points measures what the automatic snapshots of a running sandbox cost: how much longer a command takes until
// its status, when the snapshot has been taken, and what the filesystem's own snapshot takes beside it.
package points

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/run"
)

// Files is the number of files in the tree of which the sandboxes are made.
const Files = 10_000

// The names of the two sandboxes that are compared: without and with automatic snapshots.
const (
	plain   = "plain"
	pointed = "pointed"
)

// A Lab says where and with which programs to measure.
type Lab struct {
	// Program is the path of snapfs, State that of a new state directory, and Env the environment of commands.
	Program, State string
	Env            []string
	// Backend is the name of the backend.
	Backend string
	// Quick measures too little to be believed, to test the measurement itself.
	Quick bool
	// Open opens the state directory, and Clear removes its sandboxes.
	Open  func(ctx context.Context, state string) (*engine.Engine, error)
	Clear func(ctx context.Context, state string) error
	// Tree returns the directory to make sandboxes of.
	Tree func(context.Context) (string, error)
}

// Adds returns by how many milliseconds `snapfs exec` of a command that overwrites a file takes longer until it ends,
// beside another command of the sandbox, if the sandbox has a snapshot before and after each command. The value is the
// median of the differences of pairs of processes that run in turns. The detail has the time after the status until the
// snapshot was taken, and for btrfs the time of the bare ioctl that makes a snapshot of a subvolume with one
// overwritten file: no snapshot on btrfs can take less.
func (l Lab) Adds(ctx context.Context) (value float64, detail string, err error) {
	dir, err := l.Tree(ctx)
	if err != nil {
		return 0, "", err
	}
	e, err := l.Open(ctx, l.State)
	if err != nil {
		return 0, "", err
	}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(err, l.Clear(ctx, l.State), os.RemoveAll(l.State))
	}()
	for _, name := range []string{plain, pointed} {
		if err := l.begin(ctx, e, name, dir); err != nil {
			return 0, "", err
		}
	}
	rounds := 100
	if l.Quick {
		rounds = 5
	}
	var adds, without, with, later, bare []time.Duration
	for round := range rounds + 3 { // three do not count
		took := map[string]time.Duration{}
		for k := range 2 {
			name := []string{plain, pointed}[(round+k)%2]
			if took[name], err = l.exec(ctx, name, dir, round); err != nil {
				return 0, "", err
			}
			began := time.Now()
			h, err := e.Supervise.HoldAny(ctx, name)
			if err != nil {
				return 0, "", err
			}
			h.Release()
			if name == pointed && round >= 3 {
				later = append(later, time.Since(began))
			}
		}
		floor, err := l.bare(dir, round)
		if err != nil {
			return 0, "", err
		}
		if round >= 3 {
			adds = append(adds, took[pointed]-took[plain])
			without, with = append(without, took[plain]), append(with, took[pointed])
			bare = append(bare, floor)
		}
	}
	detail = fmt.Sprintf("%s without, %s with, %d pairs; the snapshot was taken %s after the status", timing.Ms(timing.Median(without)), timing.Ms(timing.Median(with)), rounds, timing.Ms(timing.Median(later)))
	if l.Backend == "btrfs" {
		detail += ", the bare ioctl takes " + timing.Ms(timing.Median(bare))
	}
	return float64(timing.Median(adds)) / float64(time.Millisecond), detail, nil
}

// begin makes the sandbox called name, in which a command runs as long as the sandbox exists.
func (l Lab) begin(ctx context.Context, e *engine.Engine, name, dir string) error {
	request := hostfs.Request{Name: name, Workspace: dir, Backend: l.Backend, Policy: catalog.Policy{Network: "none"}}
	if name == pointed {
		request.Policy.KeyPoints = &catalog.KeyPoints{At: []string{catalog.AtExec}}
	}
	if _, err := e.New(ctx, request); err != nil {
		return err
	}
	return l.run(ctx, dir, "exec", name, "--", "/bin/sh", "-c", "sleep 100000 >/dev/null 2>&1 </dev/null &")
}

// exec returns the time of `snapfs exec` of a command that overwrites one of twenty files, as a whole process.
func (l Lab) exec(ctx context.Context, name, dir string, round int) (time.Duration, error) {
	began := time.Now()
	err := l.run(ctx, dir, "exec", name, "--", "/bin/sh", "-c", fmt.Sprintf("echo %d > point-%d", round, round%20))
	return time.Since(began), err
}

func (l Lab) run(ctx context.Context, dir string, args ...string) error {
	return run.Run(ctx, run.Program{Name: l.Program, Args: append([]string{"--state", l.State}, args...), Env: l.Env, Dir: dir})
}

// bare returns the time of the ioctl that makes a snapshot of the subvolume of dir after one file was overwritten; 0 for
// a backend other than btrfs.
func (l Lab) bare(dir string, round int) (took time.Duration, err error) {
	if l.Backend != "btrfs" {
		return 0, nil
	}
	if err := os.WriteFile(filepath.Join(dir, "bare"), fmt.Append(nil, round), 0o600); err != nil {
		return 0, err
	}
	from, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer from.Close()
	beside, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return 0, err
	}
	defer beside.Close()
	const name = "bare-snapshot"
	began := time.Now()
	err = btrfs.Snapshot(int(from.Fd()), int(beside.Fd()), name, true)
	took = time.Since(began)
	if err == nil {
		err = btrfs.Destroy(int(beside.Fd()), name)
	}
	return took, err
}
