package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate"
)

// A step to fail at is the n-th fault point from when arm is called on.
type rehearsal struct {
	n      int64
	mode   string // "kill", "fail", or "" to count only
	armed  atomic.Bool
	passed atomic.Int64
	hit    string // a file to make when the step is reached
}

func (r *rehearsal) plan(step string) error {
	if !r.armed.Load() || r.passed.Add(1) != r.n {
		return nil
	}
	if r.hit != "" {
		_ = os.WriteFile(r.hit, []byte(step), 0o600)
	}
	switch r.mode {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "fail":
		return fmt.Errorf("rehearsed at %q: %w", step, syscall.EIO)
	}
	return nil
}

// rehearse is the life of a child process: one operation, with a failure at
// the n-th step. Its last line of output is the number of steps.
func rehearse(state, workspace, op, n, mode string) error {
	r := &rehearsal{mode: mode}
	r.n, _ = strconv.ParseInt(n, 10, 64)
	ctx := treetest.WithFaults(context.Background(), r.plan)
	b := &bench{workspace: workspace, state: state}
	var err error
	b.Engine, err = engine.Open(ctx, engine.Config{
		State: state, Drivers: drivers(), Supervisor: []string{"/proc/self/exe", "keeper"}, IDMapper: shifter,
		Notice: func(s string) { fmt.Fprintln(os.Stdout, "notice:", s) },
	})
	if err != nil {
		return err
	}
	r.armed.Store(true)
	all := operations()
	maps.Copy(all, carryOperations())
	maps.Copy(all, modelOperations(op))
	all["stages"] = operation{do: throughStages}
	err = all[op].do(ctx, b)
	fmt.Fprintln(os.Stdout, r.passed.Load())
	return err
}

// An outcome is how a child ended.
type outcome struct {
	killed bool
	err    error
	steps  int
	out    string
}

func (b *bench) child(op string, n int, mode string) outcome {
	b.t.Helper()
	var out strings.Builder
	err := run.Run(b.t.Context(), run.Program{Name: "/proc/self/exe", Args: []string{"rehearse", b.state, b.workspace, op, strconv.Itoa(n), mode}, Stdout: &out})
	var e *run.Error
	o := outcome{err: err, out: out.String(), killed: errors.As(err, &e) && e.Code == -1}
	lines := strings.Split(strings.TrimSpace(o.out), "\n")
	o.steps, _ = strconv.Atoi(lines[len(lines)-1])
	return o
}

// benchIn is a bench whose workspace and state lie in the directories given.
func benchIn(t *testing.T, work, state string) *bench {
	t.Helper()
	b := &bench{t: t, workspace: filepath.Join(work, "work"), state: filepath.Join(state, "state")}
	if err := os.MkdirAll(b.workspace, 0o755); err != nil {
		t.Fatal(err)
	}
	b.Engine, _ = b.reopen()
	return b
}

// reopen is what the next command does first.
func (b *bench) reopen() (*engine.Engine, *[]string) {
	b.t.Helper()
	said := new([]string)
	e, err := engine.Open(context.Background(), engine.Config{
		State: b.state, Drivers: drivers(), Supervisor: []string{"/proc/self/exe", "keeper"}, IDMapper: shifter,
		Notice: func(s string) { *said = append(*said, s) },
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return e, said
}

// sound fails the test for all that should not be there once a command has
// mended and collected: notes, trash, sandboxes half made, and data that belongs
// to no sandbox, or the other way round.
func (b *bench) sound(when string) {
	b.t.Helper()
	if _, err := b.Collect(b.t.Context()); err != nil {
		b.t.Errorf("%s: collecting: %v", when, err)
	}
	for _, dir := range []string{"active", "trash"} {
		for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			left := names(filepath.Join(b.state, dir))
			if len(left) == 0 {
				break
			}
			if time.Since(start) > 20*time.Second { // a keeper takes its time
				b.t.Errorf("%s: left in %s: %v", when, dir, left)
				break
			}
			_, _ = b.Collect(b.t.Context()) // what was not dead the first time
		}
	}
	for _, n := range names(filepath.Join(b.state, "spare")) {
		if len(n) > 1 {
			b.t.Errorf("%s: left in spare: %s", when, n)
		}
	}
	cat, err := catalog.Open(b.state)
	if err != nil {
		b.t.Fatal(err)
	}
	records, errs := cat.List()
	if len(errs) > 0 {
		b.t.Errorf("%s: %v", when, errs)
	}
	for _, lost := range b.unowned(records) {
		b.t.Errorf("%s: %s", when, lost)
	}
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) { // another test's are swept by that
		left := orphaned(b.t)
		if len(left) == 0 {
			break
		}
		if time.Since(start) > 20*time.Second {
			b.t.Errorf("%s: control groups of killed processes: %v", when, left)
			break
		}
	}
}

// orphaned lists the control groups of processes that began after this one, and were
// killed.
func orphaned(t testing.TB) (paths []string) {
	t.Helper()
	self, err := proc.Self()
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"*/snapfs-*", "*/*/snapfs-*"} {
		found, err := filepath.Glob("/sys/fs/cgroup/" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			parts := strings.Split(filepath.Base(path), "-")
			if len(parts) != 4 {
				continue
			}
			pid, _ := strconv.Atoi(parts[2])
			start, _ := strconv.ParseUint(parts[3], 10, 64)
			if start >= self.Start && !proc.Alive(proc.Process{PID: pid, Start: start}) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// unowned compares what the backends hold with what the records name.
func (b *bench) unowned(records []*catalog.Record) (wrong []string) {
	named := map[string]bool{}
	where := map[string]catalog.Tree{}
	for _, d := range drivers() {
		where[d.Name+" "+b.workspace] = catalog.Tree{Driver: d.Name, Path: b.workspace}
	}
	for _, r := range records {
		if r.State != catalog.Ready || r.Ephemeral {
			wrong = append(wrong, fmt.Sprintf("%s is %s, ephemeral: %v", r.Name, r.State, r.Ephemeral))
		}
		for id := range r.Bases() {
			named[string(id)] = true
		}
		for i, t := range r.Trees {
			where[t.Driver+" "+t.Path] = t
			named[string(t.Fork)+" fork"], named[string(t.Base)] = true, true
			for _, m := range r.Snapshots {
				named[string(m.IDs[i])] = true
			}
		}
	}
	there := map[string]bool{}
	for _, t := range where {
		backend, err := openDriver(b, t)
		if err != nil {
			continue // it does not hold trees of this kind
		}
		ids, forks, err := backend.List(context.Background())
		if err != nil {
			wrong = append(wrong, err.Error())
		}
		spare := map[bool]int{true: 1}[backend.Facts().Flushes] // the newest base, for the next command
		for _, id := range ids {
			there[string(id)] = true
			if !named[string(id)] {
				if spare--; spare < 0 {
					wrong = append(wrong, "a snapshot of nobody's: "+string(id))
				}
			}
		}
		for _, id := range forks {
			there[string(id)+" fork"] = true
			if !named[string(id)+" fork"] {
				wrong = append(wrong, "a fork of nobody's: "+string(id))
			}
		}
	}
	for id := range named {
		if !there[id] {
			wrong = append(wrong, "gone: "+id)
		}
	}
	slices.Sort(wrong)
	return slices.Compact(wrong)
}

func openDriver(b *bench, t catalog.Tree) (snapshot.Backend, error) {
	for _, d := range drivers() {
		if d.Name == t.Driver {
			return d.Open(context.Background(), snapshot.Place{Tree: snapshot.Tree{Path: t.Path}, Dir: b.DataDir(d.Name)})
		}
	}
	return nil, errors.New("no such driver")
}

func names(dir string) (found []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		found = append(found, e.Name())
	}
	return found
}

func (b *bench) command(script string) isolate.Command {
	return isolate.Command{Args: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: b.workspace}
}

// keeperOf is the process that keeps a sandbox.
func (b *bench) keeperOf(name string) proc.Process {
	b.t.Helper()
	info, err := b.Show(b.t.Context(), name)
	if err != nil || info.Supervisor == nil {
		b.t.Fatalf("no keeper of %s: %v", name, err)
	}
	return *info.Supervisor
}

// onBtrfs runs a test with its workspace on a btrfs.
func onBtrfs(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Run("btrfs", func(t *testing.T) {
		work, state := treetest.Btrfs(t), treetest.Dir(t)
		treetest.Leaks(t, state)
		test(t, benchIn(t, work, state))
	})
}
