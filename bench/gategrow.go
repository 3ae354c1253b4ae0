//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/snapfs/snapfs/backends/all"
	"github.com/snapfs/snapfs/bench/copies"
	"github.com/snapfs/snapfs/bench/depth"
	"github.com/snapfs/snapfs/bench/proxied"
	"github.com/snapfs/snapfs/bench/record"
	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/workflow/evidence"
)

// growthChecks returns the checks of the promise that commands are as fast in a larger tree, and among many
// sandboxes.
func (r *referee) growthChecks() []check {
	fusecow := r.overlay
	fusecow.Driver = "fusecow"
	list := []check{
		{name: "`snapfs ls` and `snapfs gc` among 10,000 sandboxes, to 0.3 and 2 s, the slower of both", limit: 1, held: 3, unit: "×", exact: true, measure: r.among},
	}
	for _, s := range []setting{r.overlay, fusecow, r.btrfsRoot} {
		list = append(list, check{name: "the command that grows most on " + s.Driver + ": largest tree to 1,000 files", limit: 1.2, held: 2, unit: "×", measure: r.growth(s)})
	}
	return list
}

// growth returns the measuring function of a check: it times every command of snapfs in the largest and in
// the smallest tree, in a sandbox with 100 changed files. Its value is the largest ratio of the two times.
func (r *referee) growth(s setting) measure {
	return func(ctx context.Context) (worst float64, detail string, err error) {
		var subjects []timing.Subject
		for _, files := range []int{smallest, r.largest()} {
			dir, err := r.tree(ctx, s, files)
			if err != nil {
				return 0, "", err
			}
			g := &stage{lab: r.lab, s: s, files: files, dirty: true, workspace: dir}
			g.s.State = fmt.Sprintf("%s-%d", s.State, files)
			if g.e, err = r.open(ctx, g.s.State); err != nil {
				return 0, "", err
			}
			defer Clear(context.WithoutCancel(ctx), g.s.State) //nolint:errcheck // the lab is removed with it
			if err := g.prepare(ctx); err != nil {
				return 0, "", err
			}
			g.dirty = false // the real tree stays as it is
			list, stop, err := g.processCases()
			defer stop()
			if err != nil {
				return 0, "", err
			}
			subjects = append(subjects, list[:len(list)-1]...) // without true
		}
		samples, err := timing.Interleave(ctx, r.many(), subjects...)
		if err != nil {
			return 0, "", err
		}
		half := len(samples) / 2
		for i, few := range samples[:half] {
			many := samples[half+i]
			if err := errors.Join(few.Err, many.Err); err != nil {
				return 0, "", fmt.Errorf("%s: %w", few.Name, err)
			}
			least, most := slices.Min(few.Took), slices.Min(many.Took) // as in judge
			worst = max(worst, timing.Ratio(most, least))
			detail += fmt.Sprintf("%s %s and %s, ", few.Name, timing.Ms(most), timing.Ms(least))
		}
		return worst, fmt.Sprintf("%s%d and %d files", detail, r.largest(), smallest), nil
	}
}

// among measures `snapfs ls` and `snapfs gc` in a state directory with 10,000 copies of a sandbox. Its value
// is the slower time relative to its bound, 0.3 s and 2 s.
func (r *referee) among(ctx context.Context) (_ float64, _ string, err error) {
	s, n := r.overlay, 10*r.thousands()
	s.State += "-many"
	defer func() { err = errors.Join(err, copies.Remove(s.State)) }()
	dir, err := r.tree(ctx, s, smallest)
	if err != nil {
		return 0, "", err
	}
	e, err := r.open(ctx, s.State)
	if err == nil {
		_, err = e.New(ctx, hostfs.Request{Name: "copied", Workspace: dir, Backend: s.Driver, Policy: policy()})
	}
	if err == nil {
		err = copies.Make(s.State, "copied", n)
	}
	if err != nil {
		return 0, "", err
	}
	p := r.at(s, dir)
	defer p.close()
	m, err := timing.Medians(ctx, timing.Plan{Rounds: 10, Warm: 2}, p.timed("ls", "ls"), p.timed("gc", "gc"))
	if err = errors.Join(err, p.err); err != nil {
		return 0, "", err
	}
	worst := max(timing.Ratio(m[0], 300*time.Millisecond), timing.Ratio(m[1], 2*time.Second))
	return worst, fmt.Sprintf("ls %s, gc %s, %d sandboxes", timing.Ms(m[0]), timing.Ms(m[1]), n), nil
}

// depthChecks returns the checks of package depth, which [Gate] makes only where they are selected.
func (r *referee) depthChecks() (list []check) {
	l := depth.Lab{Program: r.Program, Self: r.Self, Quick: r.Quick, Say: r.Say, Open: r.open, Clear: Clear}
	fusecow := r.overlay
	fusecow.Driver = "fusecow"
	for _, s := range []setting{r.overlay, fusecow, r.btrfsRoot} {
		tree := func(ctx context.Context) (string, error) { return r.tree(ctx, s, depth.Files) }
		list = append(list, checksOf(l.Checks(depth.Backend{Name: s.Driver, State: s.State, Env: s.env(), Tree: tree}), true)...)
	}
	return list
}

// recordChecks returns the checks of the cost of evidence, a sandbox's signed log, which package record measures.
func (r *referee) recordChecks() []check {
	s := r.overlay
	open := func(ctx context.Context, state string) (*engine.Engine, error) {
		return engine.Open(ctx, engine.Config{
			State: state, Drivers: all.Drivers, Witness: evidence.Witness, Manifest: evidence.RecordChanges,
			Supervisor: []string{r.Program, "keeper"}, Sweeper: []string{r.Program, "sweeper"},
		})
	}
	l := record.Lab{
		Program: r.Program, State: s.State + "-record", Env: s.env(), Backend: s.Driver, Quick: r.Quick, Open: open, Clear: Clear,
		Tree: func(ctx context.Context) (string, error) { return r.tree(ctx, s, record.Files) },
	}
	return checksOf(l.Checks(), false)
}

// proxyChecks returns the checks of requests through a sandbox's network proxy, which package proxied measures.
func (r *referee) proxyChecks() []check {
	s := r.overlay
	l := proxied.Lab{
		Program: r.Program, Self: r.Self, State: s.State + "-proxied", Env: s.env(), Backend: s.Driver, Quick: r.Quick, Clear: Clear,
		Tree: func(ctx context.Context) (string, error) { return r.tree(ctx, s, proxied.Files) },
	}
	return checksOf(l.Checks(), false)
}

// checksOf returns the checks of a package that measures some promises. exact is set for counts and processor times,
// which are measured once.
func checksOf(measured []timing.Check, exact bool) (list []check) {
	for _, c := range measured {
		list = append(list, check{name: c.Name, limit: c.Limit, held: c.Held, unit: c.Unit, exact: exact, measure: c.Measure})
	}
	return list
}
