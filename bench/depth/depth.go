//go:build linux

// Package depth measures what commands cost in a sandbox with 1,000 snapshots, and at the end of a chain of 500
// forks, each made from the one before, relative to what they cost with ten.
package depth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/internal/run"
)

// Files is the number of files in the tree of which chains are made. It is small, because other checks measure
// large trees.
const Files = 100

// rounds is how often each command is measured. The least time counts.
const rounds = 5

const (
	forks     = "forks"
	snapshots = "snapshots"
)

// A Lab says where and with which programs to measure.
type Lab struct {
	// Program is the path of snapfs, Self that of a program that calls [Measure] for the role [Role].
	Program, Self string
	// Quick makes short chains, to test the measurement itself.
	Quick bool
	// Say is called with a sentence about each step.
	Say func(string)
	// Open opens a state directory, and Clear removes its sandboxes.
	Open  func(ctx context.Context, state string) (*engine.Engine, error)
	Clear func(ctx context.Context, state string) error
}

// A Backend says with which backend to measure.
type Backend struct {
	Name string
	// State is the prefix of the paths of state directories, and Env the environment of commands.
	State string
	Env   []string
	// Tree returns the directory to make sandboxes of.
	Tree func(context.Context) (string, error)
}

// Checks returns the checks for one backend. Those of one chain share one measurement, which the first makes.
func (l Lab) Checks(b Backend) (list []timing.Check) {
	for _, c := range []chain{{of: forks, few: 10, many: 500}, {of: snapshots, few: 10, many: 1000}} {
		if l.Quick {
			c.many = 20
		}
		c.lab, c.backend = l, b
		in := fmt.Sprintf(" on %s: processor time with %d %s relative to %d", b.Name, c.many, c.of, c.few)
		list = append(list,
			timing.Check{Name: "exec, diff and rollback, the one that grows most," + in, Unit: "×", Limit: 2, Held: 4, Measure: c.measure("exec", "diff", "rollback")},
			timing.Check{Name: "`snapfs ls`" + in, Unit: "×", Limit: 2, Held: 10, Measure: c.measure("ls")},
			timing.Check{Name: "`snapfs gc`" + in, Unit: "×", Limit: 2, Held: 30, Measure: c.measure("gc")})
	}
	return list
}

// A chain is a list of forks of forks, or of snapshots of one sandbox, as a short one with few and a long one with
// many. results are what commands cost in both.
type chain struct {
	lab       Lab
	backend   Backend
	of        string
	few, many int
	results   map[string]*[2]cost
	failed    error
}

// measure returns the measuring function of a check: the largest ratio of the processor time of one of the commands
// names in the long chain to that in the short one.
func (c *chain) measure(names ...string) func(context.Context) (float64, string, error) {
	return func(ctx context.Context) (worst float64, detail string, err error) {
		if c.results == nil && c.failed == nil {
			c.failed = c.run(ctx)
		}
		for _, name := range names {
			got := c.results[name]
			if c.failed != nil || got == nil {
				return 0, "", c.failed
			}
			few, many := got[0], got[1]
			x := timing.Ratio(many.Tree, few.Tree)
			if name == "rollback" { // what it leaves running collects garbage, as gc does
				x = timing.Ratio(many.CPU, few.CPU)
			}
			worst = max(worst, x)
			detail += fmt.Sprintf("%s %.2f × (%s to %s; %s to %s with what it leaves running; it ends in %s to %s), ", name, x,
				timing.Ms(many.CPU), timing.Ms(few.CPU), timing.Ms(many.Tree), timing.Ms(few.Tree), timing.Ms(many.Wall), timing.Ms(few.Wall))
		}
		return worst, detail + fmt.Sprintf("%d files", Files), nil
	}
}

// run makes both chains, each in a state directory of its own, measures all commands in turns, and removes both.
func (c *chain) run(ctx context.Context) (err error) {
	dir, err := c.backend.Tree(ctx)
	if err != nil {
		return err
	}
	var ends, states [2]string
	for i, n := range []int{c.few, c.many} {
		states[i] = fmt.Sprintf("%s-%s-%s-%d", c.backend.State, c.backend.Name, c.of, n)
		defer func() {
			ctx := context.WithoutCancel(ctx)
			err = errors.Join(err, c.lab.Clear(ctx, states[i]), os.RemoveAll(states[i]))
		}()
		if ends[i], err = c.build(ctx, states[i], dir, n); err != nil {
			return err
		}
	}
	results := map[string]*[2]cost{}
	for round := range rounds + 1 { // the first does not count
		for _, name := range []string{"ls", "gc", "exec", "diff", "rollback"} {
			for i := range states {
				got, err := c.cost(ctx, states[i], dir, c.command(name, ends[i])...)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				if results[name] == nil {
					results[name] = new([2]cost)
				}
				if least := &results[name][i]; round == 1 {
					*least = got
				} else if round > 1 {
					least.CPU, least.Tree, least.Wall = min(least.CPU, got.CPU), min(least.Tree, got.Tree), min(least.Wall, got.Wall)
				}
			}
		}
	}
	c.results = results
	return nil
}

// command returns the arguments of snapfs for the command called name, on the sandbox end.
func (c *chain) command(name, end string) []string {
	switch {
	case name == "exec":
		return []string{name, end, "--", "true"}
	case name == "rollback" && c.of == snapshots:
		return []string{name, end, "at5"}
	case name == "diff" || name == "rollback":
		return []string{name, end}
	}
	return []string{name}
}

// build makes n forks, each of the one before, or a sandbox with n snapshots, in a new state directory, and
// returns the name of the last sandbox.
func (c *chain) build(ctx context.Context, state, dir string, n int) (last string, err error) {
	c.lab.Say(fmt.Sprintf("making %d %s on %s", n, c.of, c.backend.Name))
	e, err := c.lab.Open(ctx, state)
	if err != nil {
		return "", err
	}
	last = "f0"
	_, err = e.New(ctx, hostfs.Request{Name: last, Workspace: dir, Backend: c.backend.Name, Policy: catalog.Policy{Network: "none"}})
	for i := 1; i <= n && err == nil; i++ {
		if c.of == snapshots {
			_, err = e.Snapshot(ctx, last, fmt.Sprintf("at%d", i))
			continue
		}
		next := fmt.Sprintf("f%d", i)
		_, err = e.Fork(ctx, last, "", next)
		last = next
	}
	return last, err
}

// cost runs snapfs with these arguments in the directory dir, and waits for all processes that it leaves behind,
// such as the sweeper.
func (c *chain) cost(ctx context.Context, state, dir string, args ...string) (got cost, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	ask, err := json.Marshal(order{Path: c.lab.Program, Args: append([]string{"--state", state}, args...), Env: c.backend.Env, Dir: dir})
	if err != nil {
		return got, err
	}
	out, err := run.Output(ctx, c.lab.Self, "--role", Role, "--order", string(ask))
	if err != nil {
		return got, err
	}
	return got, json.Unmarshal(out, &got)
}
