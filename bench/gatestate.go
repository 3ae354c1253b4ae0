//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/bench/tree"
	"github.com/snapfs/snapfs/engine/hostfs"
)

// stateChecks returns the checks of how fast commands on an existing sandbox are, such as snapshot and diff.
func (r *referee) stateChecks() []check {
	return []check{
		{name: "exec into a live sandbox, by the engine, to fork and exec of the same program", limit: 2, held: 4, unit: "×", measure: r.inSandbox(&r.overlay, smallest, r.execToFork)},
		{name: "`snapfs exec` as a whole process to fork and exec of the same program", unjudged: true, unit: "×", measure: r.inSandbox(&r.overlay, smallest, r.execProcess)},
		{name: "`snapfs snapshot`", limit: 15, held: 40, unit: "ms", measure: r.states(0)},
		{name: "`snapfs rollback`", limit: 15, held: 40, unit: "ms", measure: r.states(1)},
		{name: "diff of 100 changes in the largest tree, on overlay, to walking it", limit: 0.05, held: 0.3, unit: "×", measure: r.diffToWalk(&r.overlay)},
		{name: "diff of 100 changes in the largest tree, on btrfs, to walking it", limit: 0.05, held: 1, unit: "×", measure: r.diffToWalk(&r.btrfsRoot)},
	}
}

// with makes a sandbox of a tree with this many files in the setting s, calls f with the sandbox's name and
// the tree's directory, and removes the sandbox.
func (r *referee) with(ctx context.Context, s setting, files int, f func(name, dir string) error) (err error) {
	const name = "checked"
	dir, err := r.tree(ctx, s, files)
	if err != nil {
		return err
	}
	if _, err := r.e.New(ctx, hostfs.Request{Name: name, Workspace: dir, Backend: s.Driver, Policy: policy()}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.e.Remove(context.WithoutCancel(ctx), name)) }()
	return f(name, dir)
}

func (r *referee) execToFork(ctx context.Context, name string, p *processes) (float64, string, error) {
	if err := startSleeper(ctx, r.e, name, p.dir); err != nil {
		return 0, "", err
	}
	exec := timing.Subject{Name: "exec", Do: timing.Timing(func(ctx context.Context) error { return execTrue(ctx, r.e, name, p.dir) })}
	m, err := timing.Medians(ctx, r.many(), exec, p.other("true", "/bin/true"))
	if err != nil {
		return 0, "", err
	}
	return timing.Ratio(m[0], m[1]), fmt.Sprintf("exec %s, fork and exec %s", timing.Ms(m[0]), timing.Ms(m[1])), nil
}

func (r *referee) execProcess(ctx context.Context, name string, p *processes) (float64, string, error) {
	if err := startSleeper(ctx, r.e, name, p.dir); err != nil {
		return 0, "", err
	}
	m, err := timing.Medians(ctx, r.many(), p.timed("snapfs exec", "exec", name, "--", "/bin/true"), p.timed("snapfs version", "version"), p.other("true", "/bin/true"))
	if err != nil {
		return 0, "", err
	}
	return timing.Ratio(m[0], m[2]), fmt.Sprintf("snapfs exec %s, of which a start of snapfs %s; fork and exec %s", timing.Ms(m[0]), timing.Ms(m[1]), timing.Ms(m[2])), nil
}

// states returns the measuring function of a check: it times `snapfs snapshot` and `snapfs rollback` in
// turns, on an idle sandbox with 100 changed files. Its value is the median of the snapshots (which = 0) or
// of the rollbacks (1), in milliseconds.
func (r *referee) states(which int) measure {
	return r.inSandbox(&r.overlay, smallest, func(ctx context.Context, name string, p *processes) (float64, string, error) {
		if err := execWait(ctx, r.e, name, p.dir, "/bin/sh", "-c", tree.DirtyScript(smallest, 0)); err != nil {
			return 0, "", err
		}
		pace := r.many()
		pace.Rounds = min(pace.Rounds, 30)
		m, err := timing.Medians(ctx, pace, p.timed("snapshot", "snapshot", name), p.timed("rollback", "rollback", name), p.timed("version", "version"))
		if err != nil {
			return 0, "", err
		}
		detail := fmt.Sprintf("snapshot %s, rollback %s, of which a start of snapfs %s", timing.Ms(m[0]), timing.Ms(m[1]), timing.Ms(m[2]))
		return float64(m[which]) / float64(time.Millisecond), detail, nil
	})
}

// diffToWalk returns the measuring function of a check: the time of Engine.Diff relative to find(1) reading
// every file's times.
func (r *referee) diffToWalk(s *setting) measure {
	files := r.largest()
	return r.inSandbox(s, files, func(ctx context.Context, name string, p *processes) (float64, string, error) {
		if err := execWait(ctx, r.e, name, p.dir, "/bin/sh", "-c", tree.DirtyScript(files, 0)); err != nil {
			return 0, "", err
		}
		found := 0
		diff := timing.Subject{Name: "diff", Do: timing.Timing(func(ctx context.Context) error {
			c, err := r.e.Compare.Diff(ctx, name, "", "")
			if err != nil {
				return err
			}
			found = c.Len()
			c.Close()
			return nil
		})}
		pace := r.many()
		pace.Rounds = min(pace.Rounds, 15)
		m, err := timing.Medians(ctx, pace, diff, p.other("walk", "find", p.dir, "-printf", "%T@ %C@ %s\n"))
		if err == nil && found != tree.ChangedFiles {
			err = fmt.Errorf("%d changes found of %d", found, tree.ChangedFiles)
		}
		if err != nil {
			return 0, "", err
		}
		return timing.Ratio(m[0], m[1]), fmt.Sprintf("diff %s, find %s, %d files", timing.Ms(m[0]), timing.Ms(m[1]), files), nil
	})
}
