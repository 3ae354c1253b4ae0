//go:build linux

package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/bench/tree"
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
)

// meanings maps the name of each timed operation in the report to a sentence that says exactly which steps
// were timed.
func meanings() map[string]string {
	return map[string]string{
		"capture":           "backend: an immutable snapshot of the real tree (dirty: 100 of its files were rewritten right before)",
		"fork":              "backend: a writable tree grown from that snapshot",
		"seal":              "backend: the present state of an idle fork made a snapshot",
		"remove fork":       "backend: a fork removed; its space is freed later",
		"new":               "engine: a sandbox of all trees of this machine, registered (dirty as in capture)",
		"first instruction": "engine: from the call of Run until the kernel has started the program in its new sandbox (dirty as in capture)",
		"exec":              "engine: true run in a sandbox where another process runs: requested from its supervisor, run, waited for",
		"fork sandbox":      "engine: a sandbox forked from another one as it is (dirty: the other has 100 changed files)",
		"snapfs run":        "whole process `snapfs run -- true`: clone, isolate, run, compare, take down (dirty as in capture)",
		"snapfs new":        "whole process `snapfs new`",
		"snapfs exec":       "whole process `snapfs exec N -- true`, a process running in N",
		"snapfs fork":       "whole process `snapfs fork N`",
		"snapfs snapshot":   "whole process `snapfs snapshot N` of an idle sandbox (dirty: with 100 changed files)",
		"snapfs rollback":   "whole process `snapfs rollback N STATE` of an idle sandbox, back to its last state (dirty as in snapshot)",
		"snapfs diff":       "whole process `snapfs diff N` (dirty as in snapshot)",
		"snapfs rm":         "whole process `snapfs rm N` of an idle sandbox",
		"true":              "whole process `true`: what the harness itself costs",
	}
}

// A stage is the setup for measuring every command once: a setting (backend, user and filesystem) and a tree
// of a given size, clean or dirty.
type stage struct {
	*lab
	s         setting
	files     int
	dirty     bool
	workspace string
	e         *engine.Engine
	round     int
}

// ready prepares the next round of a measurement: for a dirty tree, it changes a hundred real
// files.
func (g *stage) ready(context.Context) error {
	if !g.dirty {
		return nil
	}
	g.round++
	return tree.Dirty(g.workspace, g.files, g.round)
}

func (g *stage) request(name string) hostfs.Request {
	return hostfs.Request{Name: name, Workspace: g.workspace, Backend: g.s.Driver, Policy: policy()}
}

// engineCases returns the operations of the engine that are timed inside this process, without starting
// snapfs.
func (g *stage) engineCases() []timing.Subject {
	fresh := ""
	remove := func(ctx context.Context) error { return g.e.Remove(ctx, fresh) }
	name := func() string { g.round++; fresh = fmt.Sprintf("fresh-%d", g.round); return fresh }
	var session *engine.Session
	return []timing.Subject{
		{Name: "new", Before: g.ready, After: remove, Do: func(ctx context.Context) (time.Duration, error) {
			req := g.request(name())
			return timing.Timing(func(ctx context.Context) error { _, err := g.e.New(ctx, req); return err })(ctx)
		}},
		{Name: "first instruction", Before: g.ready, Do: timing.Timing(func(ctx context.Context) (err error) {
			session, err = g.e.Run(ctx, g.request(""), truth(g.workspace))
			return err
		}), After: func(ctx context.Context) error {
			if _, err := session.Wait(ctx); err != nil {
				return err
			}
			return session.Discard(ctx)
		}},
		{Name: "exec", Do: timing.Timing(func(ctx context.Context) error { return execTrue(ctx, g.e, runningName, g.workspace) })},
		{Name: "fork sandbox", After: remove, Do: func(ctx context.Context) (time.Duration, error) {
			name := name()
			return timing.Timing(func(ctx context.Context) error { _, err := g.e.Fork(ctx, idleName, "", name); return err })(ctx)
		}},
	}
}

// Names of the two sandboxes that a stage measures commands on: in runningName a command runs, in idleName
// none.
const (
	idleName    = "kept"
	runningName = "live"
)

// processCases returns the snapfs command lines that are timed as whole processes, and a
// function that frees what they use.
func (g *stage) processCases() ([]timing.Subject, func(), error) {
	p := processes{lab: g.lab, s: g.s, dir: g.workspace}
	fresh := "fresh-process"
	remove := func(ctx context.Context) error { return g.e.Remove(ctx, fresh) }
	list := []timing.Subject{
		p.timed("snapfs run", "run", "--backend", g.s.Driver, "--", "true"),
		p.timed("snapfs new", "new", "--backend", g.s.Driver, fresh),
		p.timed("snapfs exec", "exec", runningName, "--", "true"),
		p.timed("snapfs fork", "fork", idleName, fresh),
		p.timed("snapfs snapshot", "snapshot", idleName),
		p.timed("snapfs rollback", "rollback", idleName, firstState),
		p.timed("snapfs diff", "diff", idleName),
		p.timed("snapfs rm", "rm", fresh),
		p.other("true", "true"),
	}
	list[0].Before = g.ready
	list[1].Before, list[1].After = g.ready, remove
	list[3].After = remove
	list[7].Before = func(ctx context.Context) error { _, err := g.e.New(ctx, g.request(fresh)); return err }
	return list, p.close, p.err
}

const firstState = "first"

// prepare makes the stage's sandboxes idleName and runningName, takes the first snapshot of the idle one, and
// starts a command in the running one.
func (g *stage) prepare(ctx context.Context) error {
	for _, name := range []string{idleName, runningName} {
		if _, err := g.e.New(ctx, g.request(name)); err != nil {
			return err
		}
	}
	if g.dirty {
		if err := execWait(ctx, g.e, idleName, g.workspace, "/bin/sh", "-c", tree.DirtyScript(g.files, 0)); err != nil {
			return err
		}
	}
	if _, err := g.e.Snapshot(ctx, idleName, firstState); err != nil {
		return err
	}
	return startSleeper(ctx, g.e, runningName, g.workspace)
}
