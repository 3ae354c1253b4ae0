package promote_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/internal/treetest"
)

// These tests kill promotion, recovery and undo at every system call: the promotion on ext4
// at each call, the others at each call that can change anything, which leaves the same
// states in a tenth of the time. The next command must find the whole old tree or the whole
// new one, and no leftovers. make test kills them at one call in eleven.

// mixed is scene with read-only directories in which names are added, removed and changed,
// attributes on new files, and a deeper tree.
func mixed() (before, after treetest.Script) {
	before, after = scene()
	closed := do(treetest.Chmod, "closed", "")
	closed.Mode = 0o555
	closed.Time = second
	before = append(before, do(treetest.Mkdir, "closed", ""), file("closed/mod", 31, 10), file("closed/gone", 32, 10),
		do(treetest.Mkdir, "closed/dir", ""), file("closed/dir/x", 33, 10), closed)
	attr := do(treetest.Setxattr, "deep/er/attr", "")
	attr.Attr, attr.Value = "user.snapfs", []byte("new")
	open, sealed := closed, closed
	open.Mode = 0o755
	sealed.Path = "deep/er/sealed"
	after = append(after, open, do(treetest.Unlink, "closed/mod", ""), file("closed/mod", 34, 10), do(treetest.Unlink, "closed/gone", ""),
		file("closed/new", 35, 10), do(treetest.RemoveRF, "closed/dir", ""), closed,
		do(treetest.Mkdir, "deep", ""), do(treetest.Mkdir, "deep/er", ""), file("deep/er/attr", 36, 5000), attr,
		do(treetest.Symlink, "deep/er/sym", "../../keep"), do(treetest.Mkdir, "deep/er/sealed", ""), file("deep/er/sealed/x", 37, 10), sealed)
	return before, after
}

// A crash runs one command and kills it at each of its system calls in turn.
type crash struct {
	t        *testing.T
	top      string
	w        *world
	old, new string // manifests; new without the times of directories
	worlds   int
	but      string // system calls that do not count
	state    string // another disk for the state directory, or ""
	calls    tally
}

// fresh creates a world before any command.
func (c *crash) fresh() {
	before, after := mixed()
	sub := filepath.Join(c.top, fmt.Sprint("world", c.worlds))
	c.worlds++
	if c.w != nil {
		must(c.t, os.RemoveAll(c.w.top))
	}
	must(c.t, os.MkdirAll(sub, 0o755))
	c.w = newWorld(c.t, sub, before, after)
	c.old = c.look(c.w.real.Name(), treetest.Options{})
	c.new = c.look(c.w.sandbox.Name(), treetest.Options{NoDirTimes: true})
	c.stateOn()
	// Do and undo once: files that moved back have a later change time, and further commands
	// make more calls to compare them.
	r := c.w.promoted(c.t, "s", c.w.frozen())
	_, err := promote.Undo(c.t.Context(), c.w.state(), r.ID)
	must(c.t, err)
}

// kill runs a command and kills it at its nth call. It returns false if the command ended.
func (c *crash) kill(command string, n int) bool {
	c.t.Helper()
	cmd, err := c.w.child(command, killTraced+"="+c.but)
	must(c.t, err)
	call, _, err := killAtCall(cmd, n)
	if err != nil {
		c.t.Fatalf("%s, call %d: %v", command, n, err)
	}
	if call != "" {
		c.calls[call]++
	}
	return call != ""
}

// count returns the number of calls that a command makes.
func (c *crash) count(command string) int {
	c.t.Helper()
	c.fresh()
	cmd, err := c.w.child(command, killTraced+"="+c.but)
	must(c.t, err)
	_, calls, err := killAtCall(cmd, 0)
	must(c.t, err)
	return calls
}

// look returns the manifest of a path, and leaves nothing open.
func (c *crash) look(path string, o treetest.Options) string {
	c.t.Helper()
	dir, err := os.Open(path)
	must(c.t, err)
	defer dir.Close()
	var b strings.Builder
	must(c.t, treetest.WriteManifest(&b, dir, o))
	return b.String()
}

// recovered runs Recover and reports whether the tree is the new one. It fails the test for
// any state between old and new, and for leftovers.
func (c *crash) recovered(what string) (isNew bool) {
	c.t.Helper()
	list, err := promote.Recover(c.t.Context(), c.w.state())
	if err != nil || len(list) > 1 || len(list) == 1 && len(list[0].Changed) > 0 {
		c.t.Fatalf("%s: recovered %+v, %v", what, list, err)
	}
	return c.whole(what, len(list) == 1 && list[0].Done)
}

func (c *crash) whole(what string, done bool) (isNew bool) {
	c.t.Helper()
	lines := treetest.Lines(c.old, c.look(c.w.real.Name(), treetest.Options{}))
	isNew = len(lines) > 0
	if isNew {
		for _, l := range treetest.Lines(c.new, c.look(c.w.real.Name(), treetest.Options{NoDirTimes: true})) {
			c.t.Fatalf("%s: neither the old tree nor the new one: %s; beside the old one %q", what, l, lines)
		}
	}
	if done && !isNew {
		c.t.Fatalf("%s: said to be complete, and the old tree is there", what)
	}
	kept, err := filepath.Glob(c.w.state() + "/*.[ur]*do")
	must(c.t, err)
	if n := c.w.stages(c.t); n != len(kept) {
		c.t.Fatalf("%s: %d stages beside the tree and %q", what, n, kept)
	}
	state, err := os.ReadDir(c.w.state())
	if err == nil && len(state) > 1+len(kept) {
		c.t.Fatalf("%s: left in the state directory: %v", what, state)
	}
	return isNew
}

// atEveryCall divides the calls of a command among workers with worlds of their own, and
// prints the number of calls. each runs for one call and returns false once the command ends
// before it.
func atEveryCall(t *testing.T, top, command, but string, each func(c *crash, n int) bool) {
	const workers = 3
	step := treetest.Budget(t, 11, 1)
	if os.Getenv(flaglessEnv) != "" && !long(t) {
		step = 29
	}
	all := tally{}
	var mutex sync.Mutex
	t.Run("all", func(t *testing.T) {
		for i := range workers {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				c := &crash{t: t, top: filepath.Join(top, fmt.Sprint(command, i)), but: but, calls: tally{}}
				must(t, os.Mkdir(c.top, 0o755))
				c.fresh()
				for n := 1 + i*step; each(c, n); n += workers * step {
				}
				mutex.Lock()
				defer mutex.Unlock()
				for name, n := range c.calls {
					all[name] += n
				}
			})
		}
	})
	t.Logf("%s: killed at %v", command, all)
	if step != 1 {
		return
	}
	missed := slices.DeleteFunc(map[string][]string{
		"apply": {"renameat2", "mkdirat", "linkat", "symlinkat", "unlinkat", "utimensat", "fsync", "syncfs", "write"},
		"keep":  {"renameat2", "mkdirat", "linkat", "symlinkat", "utimensat", "fsync", "syncfs", "write"},
		"undo":  {"renameat2", "unlinkat", "utimensat", "syncfs"},
		"again": {"renameat2", "write", "fsync", "unlinkat", "utimensat", "syncfs"},
		"redo":  {"renameat2", "write", "fsync", "unlinkat", "utimensat", "syncfs"},
	}[command], func(call string) bool { return all[call] > 0 })
	if len(missed) == 0 {
		return
	}
	// The number of reads before a call differs from run to run, so that no kill may have come at a rare call. Only the
	// calls at which none has come are counted now.
	c := &crash{t: t, top: filepath.Join(top, command+" rare"), but: but + " " + strings.Join(slices.Collect(maps.Keys(all)), " "), calls: tally{}}
	must(t, os.Mkdir(c.top, 0o755))
	c.fresh()
	for n := 1; each(c, n); n++ {
	}
	for _, call := range missed {
		if c.calls[call] == 0 {
			t.Errorf("never killed at %s", call)
		}
	}
}

// onDisks runs a crash test on ext4 and on btrfs. Without rename flags make test runs it on ext4 alone.
func onDisks(t *testing.T, test func(t *testing.T, top string)) {
	for _, fs := range []string{"ext4", "btrfs"} {
		if fs == "btrfs" && os.Getenv(flaglessEnv) != "" && !long(t) {
			continue
		}
		t.Run(fs, func(t *testing.T) { test(t, treetest.NewDisk(t, fs).Dir) })
	}
}

func TestPromotionKilledAtEverySystemCallLeavesTheOldTreeOrTheNew(t *testing.T) {
	onDisks(t, func(t *testing.T, top string) {
		for _, command := range []string{"apply", "keep"} {
			but := runtimes
			if command != "apply" || !strings.Contains(t.Name(), "ext4") {
				but += " " + reads
			}
			atEveryCall(t, top, command, but, func(c *crash, n int) bool {
				killed := c.kill(command, n)
				isNew := c.recovered(fmt.Sprint(command, ", call ", n))
				if !killed && !isNew {
					c.t.Fatal("it ran through, and the old tree is there")
				}
				if isNew {
					c.fresh()
				}
				return killed
			})
		}
	})
}

func TestUndoKilledAtEverySystemCallLeavesTheOldTreeOrTheNew(t *testing.T) {
	onDisks(t, func(t *testing.T, top string) {
		atEveryCall(t, top, "undo", runtimes+" "+reads, func(c *crash, n int) bool {
			if list, err := promote.Promotions(c.w.state()); err != nil || len(list) == 0 {
				must(c.t, err)
				c.w.promoted(c.t, "s", c.w.frozen())
			}
			killed := c.kill("undo", n)
			isNew := c.recovered(fmt.Sprint("undo, call ", n))
			list, err := promote.Promotions(c.w.state())
			must(c.t, err)
			if !killed && isNew || isNew != (len(list) == 1) {
				c.t.Fatalf("call %d: new %t, and %d to be undone", n, isNew, len(list))
			}
			return killed
		})
	})
}

// TestRecoveryKilledAtEverySystemCallCompletes kills a promotion at some of its calls, and
// its recovery at each. In make test each disk has half of the calls of the promotion.
func TestRecoveryKilledAtEverySystemCallCompletes(t *testing.T) {
	onDisks(t, func(t *testing.T, top string) {
		total := (&crash{t: t, top: filepath.Join(top, "count"), but: runtimes + " " + reads}).count("apply")
		for i, share := range []float64{0.55, 0.7, 0.85, 0.97} {
			if onBtrfs := strings.Contains(t.Name(), "btrfs"); !long(t) && onBtrfs != (i%2 == 1) {
				continue
			}
			sub := filepath.Join(top, fmt.Sprint(share))
			must(t, os.Mkdir(sub, 0o755))
			atEveryCall(t, sub, "recover", runtimes+" "+reads, func(c *crash, n int) bool {
				if !c.kill("apply", int(float64(total)*share)) {
					c.t.Fatal("it ran through")
				}
				killed := c.kill("recover", n)
				if c.recovered(fmt.Sprint("apply killed at ", share, ", recovery at call ", n)) {
					c.fresh()
				}
				return killed
			})
		}
	})
}
