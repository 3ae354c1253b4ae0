//go:build linux

// Package record measures what a sandbox with evidence, a signed log of everything done in it, costs relative to one
// without: in each command, in a job of 10,000 events, and to open, export and verify long logs.
package record

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/workflow/evidence"
)

// Files is the number of files in the tree of which the sandboxes are made.
const Files = 100

// The names of the two sandboxes that are compared.
const (
	plain    = "plain"
	recorded = "recorded"
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
	// Open opens the state directory for an engine that writes evidence, and Clear removes its sandboxes.
	Open  func(ctx context.Context, state string) (*engine.Engine, error)
	Clear func(ctx context.Context, state string) error
	// Tree returns the directory to make sandboxes of.
	Tree func(context.Context) (string, error)
}

// Checks returns the checks of the cost of evidence.
func (l Lab) Checks() []timing.Check {
	var both jobTimes
	return []timing.Check{
		{Name: "evidence adds to a `snapfs exec` of true, in processor time", Unit: "ms", Limit: 1, Measure: l.with(l.execAdds(func(t took) time.Duration { return t.cpu }))},
		{Name: "evidence adds to a `snapfs exec` of true, until it ends", Unit: "ms", Limit: 1, Held: 3, Measure: l.with(l.execAdds(func(t took) time.Duration { return t.wall }))},
		{Name: "a job of 10,000 events with evidence, to one without", Unit: "×", Limit: 1.03, Held: 1.4, Measure: l.job(&both, func(t took) time.Duration { return t.wall })},
		{Name: "a job of 10,000 events with evidence, to one without, in processor time of snapfs", Unit: "×", Limit: 1.03, Held: 1.4, Measure: l.job(&both, func(t took) time.Duration { return t.cpu })},
		{Name: "export and verify a record of 100,000 events, in processor time", Unit: "s", Limit: 2, Measure: l.with(l.export)},
		{Name: "open a record of a million events", Unit: "ms", Limit: 100, Measure: l.with(l.opens)},
	}
}

// A pair is a running sandbox with evidence and one without, of one tree.
type pair struct {
	Lab
	e   *engine.Engine
	dir string
}

// with returns the measuring function of a check: it makes a [pair], calls f with it and removes the pair.
func (l Lab) with(f func(context.Context, *pair) (float64, string, error)) func(context.Context) (float64, string, error) {
	return func(ctx context.Context) (value float64, detail string, err error) {
		p := &pair{Lab: l}
		if p.dir, err = l.Tree(ctx); err != nil {
			return 0, "", err
		}
		if p.e, err = l.Open(ctx, l.State); err != nil {
			return 0, "", err
		}
		defer func() {
			ctx := context.WithoutCancel(ctx)
			err = errors.Join(err, l.Clear(ctx, l.State), os.RemoveAll(l.State))
		}()
		for _, name := range []string{plain, recorded} {
			made := hostfs.Request{Name: name, Workspace: p.dir, Backend: l.Backend, Policy: catalog.Policy{Network: "none", Evidence: name == recorded}}
			if _, err := p.e.New(ctx, made); err != nil {
				return 0, "", err
			}
			if err := p.exec(ctx, name, "/bin/sh", "-c", "sleep 100000 >/dev/null 2>&1 </dev/null &"); err != nil {
				return 0, "", err
			}
		}
		return f(ctx, p)
	}
}

// exec runs a command in the sandbox called name, by the engine in this process, and waits for it.
func (p *pair) exec(ctx context.Context, name string, args ...string) error {
	c, err := p.e.Supervise.Exec(ctx, name, engine.Command{Args: args, Env: p.Env, Dir: p.dir})
	if err != nil {
		return err
	}
	st, err := c.Wait(ctx)
	if err == nil && st.ExitCode() != 0 {
		err = fmt.Errorf("%s in a sandbox: exit status %d", args[0], st.ExitCode())
	}
	return errors.Join(err, c.Close())
}

// A took is the time that a process took: wall until it ended, and cpu on processors.
type took struct{ wall, cpu time.Duration }

// process runs snapfs with these arguments, waits for it and returns its times.
func (p *pair) process(ctx context.Context, args ...string) (t took, err error) {
	prepared, err := run.Prepare(run.Program{Name: p.Program, Args: append([]string{"--state", p.State}, args...), Env: p.Env, Dir: p.dir})
	if err != nil {
		return t, err
	}
	defer prepared.Close()
	before := timing.Processor(unix.RUSAGE_CHILDREN)
	t.wall, err = prepared.Run(ctx)
	t.cpu = timing.Processor(unix.RUSAGE_CHILDREN) - before
	return t, err
}

// supervising returns the processor time of the supervisor of the sandbox called name, the process that starts the
// sandbox's commands and records them.
func (p *pair) supervising(name string) (time.Duration, error) {
	rec, err := p.e.Catalog().Get(name)
	if err != nil {
		return 0, err
	}
	if rec.Supervisor == nil {
		return 0, errors.New(name + " has no supervisor")
	}
	const ofProcess = 2 // CPUCLOCK_SCHED of the kernel
	var t unix.Timespec
	err = unix.ClockGettime(int32(^rec.Supervisor.PID<<3|ofProcess), &t)
	return time.Duration(t.Nano()), err
}

// execAdds returns the measuring function of a check: by how many milliseconds `snapfs exec` of true takes longer in a
// sandbox with evidence. of selects the time to compare. Processor time includes that of the supervisor, which records
// the command. The value is the median of the differences of pairs of processes that run in turns.
func (l Lab) execAdds(of func(took) time.Duration) func(context.Context, *pair) (float64, string, error) {
	return func(ctx context.Context, p *pair) (float64, string, error) {
		rounds := 100
		if p.Quick {
			rounds = 5
		}
		all := map[string][]time.Duration{}
		for round := range rounds + 3 { // three do not count
			var now [2]took
			for k := range 2 {
				i := (round + k) % 2
				name := []string{plain, recorded}[i]
				before, err := p.supervising(name)
				if err == nil {
					now[i], err = p.process(ctx, "exec", name, "--", "/bin/true")
				}
				after, serr := p.supervising(name)
				if err := errors.Join(err, serr); err != nil {
					return 0, "", err
				}
				now[i].cpu += after - before
			}
			if round >= 3 {
				all["adds"] = append(all["adds"], of(now[1])-of(now[0]))
				all[plain], all[recorded] = append(all[plain], of(now[0])), append(all[recorded], of(now[1]))
			}
		}
		sync, err := p.syncTakes()
		adds := signedMedian(all["adds"])
		return ms(adds), fmt.Sprintf("%s with evidence, %s without, %d pairs; one sync of this disk takes %s, which a command does not wait for",
			timing.Ms(timing.Median(all[recorded])), timing.Ms(timing.Median(all[plain])), rounds, timing.Ms(sync)), err
	}
}

// ms returns d in milliseconds.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// signedMedian returns the median of all, of which some may be negative.
func signedMedian(all []time.Duration) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// syncTakes returns the median time in which this disk puts some hundred bytes, appended to a file, on stable storage.
func (p *pair) syncTakes() (time.Duration, error) {
	f, err := os.Create(filepath.Join(p.State, "synced"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var all []time.Duration
	for range 50 {
		if _, err := f.Write(make([]byte, 400)); err != nil {
			return 0, err
		}
		began := time.Now()
		if err := f.Sync(); err != nil {
			return 0, err
		}
		all = append(all, time.Since(began))
	}
	return timing.Median(all), nil
}

// jobTimes are the times that the commands of a job took, in turns without evidence and with it.
type jobTimes struct {
	turns  [2][]took // without evidence, with it; a turn is the time of several commands, one after another
	each   int       // the number of commands of a turn
	unread int       // the number of checks that have not read the times
}

// job returns the measuring function of a check: a job of 5,000 commands with and without evidence. Each command leaves
// an event of its start and one of its end. of selects the time to compare: until the job ends, or the processor time
// of the engine and the supervisor, without the commands. The value is the time with evidence relative to the time
// without: the median of 50 pairs that run in turns. The two checks that compare these times read one measurement,
// both; a check that is repeated measures again.
func (l Lab) job(both *jobTimes, of func(took) time.Duration) func(context.Context) (float64, string, error) {
	again := l.with(func(ctx context.Context, p *pair) (_ float64, _ string, err error) {
		*both, err = p.jobs(ctx)
		return 0, "", err
	})
	return func(ctx context.Context) (float64, string, error) {
		if both.unread == 0 {
			if _, _, err := again(ctx); err != nil {
				return 0, "", err
			}
		}
		both.unread--
		times := func(i int, of func(took) time.Duration) (list []time.Duration) {
			for _, t := range both.turns[i] {
				list = append(list, of(t)/time.Duration(both.each))
			}
			return list
		}
		median := func(i int, of func(took) time.Duration) string { return timing.Ms(timing.Median(times(i, of))) }
		wall, cpu := func(t took) time.Duration { return t.wall }, func(t took) time.Duration { return t.cpu }
		return timing.Pairs(times(1, of), times(0, of)), fmt.Sprintf("%d commands, ls of %d files: %s each with evidence, %s without; the part of the engine and the supervisor on processors %s and %s",
			len(both.turns[0])*both.each, Files, median(1, wall), median(0, wall), median(1, cpu), median(0, cpu)), nil
	}
}

// jobs runs the commands of a job in both sandboxes, in turns of a hundred commands, and returns their times.
func (p *pair) jobs(ctx context.Context) (jobTimes, error) {
	turns, all := 50, jobTimes{each: 100, unread: 2}
	if p.Quick {
		turns, all.each = 3, 5
	}
	for turn := range turns + 1 { // the first does not count
		for k := range 2 {
			i := (turn + k) % 2
			t, err := p.commands(ctx, []string{plain, recorded}[i], all.each)
			if err != nil {
				return jobTimes{}, err
			}
			if turn > 0 {
				all.turns[i] = append(all.turns[i], t)
			}
		}
	}
	return all, nil
}

// commands runs n commands, one after another, in the sandbox called name. It returns the time until the last one has
// ended, and the processor time of this process and the sandbox's supervisor.
func (p *pair) commands(ctx context.Context, name string, n int) (t took, err error) {
	supervised, err := p.supervising(name)
	began, before := time.Now(), timing.Processor(unix.RUSAGE_SELF)
	for range n {
		if err = errors.Join(err, p.exec(ctx, name, "/bin/ls", "-l", p.dir)); err != nil {
			return t, err
		}
	}
	t.wall, t.cpu = time.Since(began), timing.Processor(unix.RUSAGE_SELF)-before
	after, err := p.supervising(name)
	t.cpu += after - supervised
	return t, err
}

// export measures the processor time in seconds of `snapfs evidence export`, which ends the record, and verify, for a
// record of 100,000 events.
func (l Lab) export(ctx context.Context, p *pair) (float64, string, error) {
	n := 100_000
	if p.Quick {
		n = 1000
	}
	if _, err := p.lengthen(n); err != nil {
		return 0, "", err
	}
	if err := p.exec(ctx, recorded, "/bin/true"); err != nil { // stores the position, as each command does
		return 0, "", err
	}
	file := filepath.Join(p.State, "exported")
	exported, err := p.process(ctx, "evidence", "export", recorded, "-o", file)
	if err != nil {
		return 0, "", err
	}
	verified, err := p.process(ctx, "evidence", "verify", file)
	if err != nil {
		return 0, "", err
	}
	return (exported.cpu + verified.cpu).Seconds(), fmt.Sprintf("%d events: export %s, it ends in %s; verify %s, it ends in %s", n,
		timing.Ms(exported.cpu), timing.Ms(exported.wall), timing.Ms(verified.cpu), timing.Ms(verified.wall)), nil
}

// opens measures the time in milliseconds in which a process that has not read the log yet finds the last record of a
// million. The process also verifies that the log contains the position that this host has stored.
func (l Lab) opens(ctx context.Context, p *pair) (float64, string, error) {
	n := 1_000_000
	if p.Quick {
		n = 1000
	}
	id, err := p.lengthen(n)
	if err != nil {
		return 0, "", err
	}
	if err := p.exec(ctx, recorded, "/bin/true"); err != nil { // closes the segment, and stores the position
		return 0, "", err
	}
	var all []time.Duration
	for range 20 {
		began := time.Now()
		r, err := evidence.Of(p.e.Catalog()).Log(id).Last()
		all = append(all, time.Since(began))
		if err != nil || r.Seq < int64(n) {
			return 0, "", fmt.Errorf("the last record is number %d: %w", r.Seq, err)
		}
	}
	return ms(timing.Median(all)), fmt.Sprintf("%d events, median of %d", n, len(all)), nil
}
