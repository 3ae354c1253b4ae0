package promote_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

var errRehearsed = errors.New("rehearsed")

func TestEveryStepThatFailsLeavesTheOldTree(t *testing.T) {
	before, after := scene()
	w := newWorld(t, treetest.Dir(t), before, after)
	changes, old := w.changes(t, w.frozen()), manifest(t, w)
	steps := map[string]int{}
	for n := int64(1); ; n++ {
		var count atomic.Int64
		var at string
		ctx := treetest.WithFaults(t.Context(), func(step string) error {
			if count.Add(1) == n {
				at = step
				return errRehearsed
			}
			return nil
		})
		_, err := promote.Apply(ctx, w.target(), w.source(), changes, options(w.frozen()))
		if err == nil {
			if at == "" || at == "remove a stage" || at == "remove the journal" {
				break // the step was not reached, or all are done
			}
			t.Fatalf("%s: the failure is not reported", at)
		}
		steps[at]++
		if !errors.Is(err, errRehearsed) {
			t.Fatalf("%s: %v", at, err)
		}
		if l := treetest.Lines(old, manifest(t, w)); len(l) > 0 {
			t.Fatalf("%s: left changed: %q", at, l)
		}
		w.clean(t)
	}
	for _, step := range []string{
		"begin the journal", "make a stage", "build a new version", "sync the stages", "write the journal",
		"put", "swap", "drop", "alter metadata", "sync the target", "look again", "commit",
	} {
		if steps[step] == 0 {
			t.Errorf("%q never failed", step)
		}
	}
	if _, err := promote.Recover(t.Context(), w.state()); err != nil { // the last one failed while it cleaned up
		t.Fatal(err)
	}
	w.arrived(t)
}

// killer names the environment variables of a child that kills itself at a step.
const killTop, killStep, killCommand, killTraced = "SNAPFS_TEST_KILL_TOP", "SNAPFS_TEST_KILL_STEP", "SNAPFS_TEST_KILL_COMMAND", "SNAPFS_TEST_KILL_TRACED"

func TestMain(m *testing.M) {
	if os.Getenv(flaglessEnv) != "" {
		if err := refuseFlags(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if top := os.Getenv(killTop); top != "" {
		os.Exit(dieInTheMiddle(top))
	}
	os.Exit(treetest.Shards(m))
}

// dieInTheMiddle applies or recovers, and kills itself at a step. It returns 0 if it reached
// the end.
func dieInTheMiddle(top string) int {
	n, _ := strconv.ParseInt(os.Getenv(killStep), 10, 64)
	taken, _ := time.Parse(time.RFC3339Nano, os.Getenv("SNAPFS_TEST_TAKEN"))
	w := &world{top: top, taken: taken}
	for name, f := range map[string]**os.File{"real": &w.real, "base": &w.base, "sandbox": &w.sandbox} {
		var err error
		if *f, err = os.Open(filepath.Join(top, name)); err != nil {
			return 1
		}
	}
	changes, err := diff.Trees(context.Background(), w.base, w.sandbox, diff.Options{})
	if err != nil {
		return 1
	}
	var count atomic.Int64
	ctx := treetest.WithFaults(context.Background(), func(string) error {
		if count.Add(1) == n {
			if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
				return err
			}
			select {}
		}
		return nil
	})
	o := options(w.frozen())
	list, err := promote.Promotions(w.state())
	undone, err2 := promote.Undones(w.state())
	err = errors.Join(err, err2)
	if but := os.Getenv(killTraced); but != "" {
		err = errors.Join(err, traceCalls(but))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	switch os.Getenv(killCommand) {
	case "recover":
		_, err = promote.Recover(ctx, w.state())
	case "undo":
		_, err = promote.Undo(ctx, w.state(), list[0].ID)
	case "again", "part":
		o := promote.UndoOptions{Again: time.Now()}
		if os.Getenv(killCommand) == "part" {
			o.Take = somePaths
		}
		_, err = promote.UndoWith(ctx, w.state(), list[0].ID, o)
	case "redo":
		_, err = promote.Redo(ctx, w.state(), undone[0].ID, promote.UndoOptions{})
	case "keep":
		o.KeepUndo = true
		fallthrough
	default:
		_, err = promote.Apply(ctx, w.target(), w.source(), changes, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// child returns a command that runs this program on the world.
func (w *world) child(command string, env ...string) (*exec.Cmd, error) {
	exe, err := os.Executable()
	cmd := exec.Command(exe)
	cmd.Env = append(append(os.Environ(), env...), killTop+"="+w.top, killCommand+"="+command, "SNAPFS_TEST_TAKEN="+w.taken.Format(time.RFC3339Nano))
	return cmd, err
}

// killed runs such a child and reports whether it was killed.
func killed(t *testing.T, w *world, command string, step int) bool {
	t.Helper()
	cmd, err := w.child(command, killStep+"="+strconv.Itoa(step))
	must(t, err)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
			return true
		}
	}
	if err != nil {
		t.Fatalf("step %d: %v\n%s", step, err, out)
	}
	return false
}

func TestAfterKillAtAnyStepRecoverFindsTheOldTreeOrTheNew(t *testing.T) {
	treetest.OncePerRun(t)
	t.Run("here", func(t *testing.T) { killEverywhere(t, treetest.Dir(t)) })
	if long(t) { // in make test the kills at system calls are on btrfs too
		t.Run("btrfs", func(t *testing.T) { killEverywhere(t, treetest.Btrfs(t)) })
	}
}

func killEverywhere(t *testing.T, top string) {
	before, after := scene()
	w := newWorld(t, top, before, after)
	old, kills, done := manifest(t, w), 0, false
	for step := 1; killed(t, w, "apply", step); step++ {
		kills++
		if step%3 == 0 { // recovery is killed, too
			for again := 1; killed(t, w, "recover", again); again++ {
				kills++
			}
		} else {
			list, err := promote.Recover(t.Context(), w.state())
			must(t, err)
			if len(list) > 1 || len(list) == 1 && len(list[0].Changed) > 0 {
				t.Fatalf("step %d: %+v", step, list)
			}
			done = len(list) == 1 && list[0].Done
		}
		if list, err := promote.Recover(t.Context(), w.state()); err != nil || len(list) > 0 {
			t.Fatalf("step %d: recovered twice: %+v %v", step, list, err)
		}
		w.clean(t)
		if l := treetest.Lines(old, manifest(t, w)); len(l) == 0 {
			continue
		} else if !done && step%3 != 0 {
			t.Fatalf("step %d: taken back, but %q", step, l)
		}
		break // the step after the commit
	}
	w.arrived(t)
	if kills < 40 {
		t.Errorf("only %d steps were killed at", kills)
	}
}

func TestRecoverLeavesForeignChangesAndSavesTheOldVersion(t *testing.T) {
	w := newWorld(t, treetest.Dir(t), treetest.Script{file("a", 1, 10), file("b", 2, 10)},
		treetest.Script{do(treetest.Unlink, "a", ""), file("a", 4, 10), do(treetest.Unlink, "b", ""), file("b", 5, 10), do(treetest.Mkdir, "new", ""), file("new/x", 3, 10)})
	for step := 1; ; step++ {
		if !killed(t, w, "apply", step) {
			t.Fatal("never killed between moving and committing")
		}
		if _, err := os.Stat(w.real.Name() + "/new"); err == nil {
			break
		}
		_, err := promote.Recover(t.Context(), w.state())
		must(t, err)
	}
	must(t, os.WriteFile(w.real.Name()+"/a", []byte("the user's"), 0o644))
	must(t, os.WriteFile(w.real.Name()+"/new/y", []byte("the user's"), 0o644))
	list, err := promote.Recover(t.Context(), w.state())
	must(t, err)
	if len(list) != 1 || strings.Join(list[0].Changed, " ") != "a new" || list[0].Saved == "" {
		t.Fatalf("%+v", list)
	}
	for path, want := range map[string]string{"a": "the user's", "new/y": "the user's"} {
		if got, _ := os.ReadFile(filepath.Join(w.real.Name(), path)); string(got) != want {
			t.Errorf("%s holds %q", path, got)
		}
	}
	saved, err := os.ReadDir(list[0].Saved)
	must(t, err)
	if len(saved) < 2 { // .gitignore and the old version
		t.Error("the old version of a is lost")
	}
	if list, err := promote.Recover(t.Context(), w.state()); err != nil || len(list) > 0 {
		t.Errorf("again: %+v %v", list, err)
	}
}

func TestADamagedOrNewerJournalIsReportedAndNothingTouched(t *testing.T) {
	w := newWorld(t, treetest.Dir(t), treetest.Script{file("a", 1, 10)}, treetest.Script{do(treetest.Unlink, "a", "")})
	for step := 1; ; step++ {
		killed(t, w, "apply", step)
		if _, err := os.Stat(w.real.Name() + "/a"); err != nil {
			break
		}
		_, err := promote.Recover(t.Context(), w.state())
		must(t, err)
	}
	journals, err := filepath.Glob(w.state() + "/*.journal")
	must(t, err)
	whole, err := os.ReadFile(journals[0])
	must(t, err)
	now := manifest(t, w)
	damaged := strings.Replace(string(whole), "target", "tarbet", 1)
	must(t, os.WriteFile(journals[0], []byte(damaged), 0o600))
	if _, err := promote.Recover(t.Context(), w.state()); !errors.Is(err, errs.ErrCorrupt) {
		t.Errorf("damaged: %v", err)
	}
	if l := treetest.Lines(now, manifest(t, w)); len(l) > 0 {
		t.Errorf("touched %q", l)
	}
	must(t, os.WriteFile(journals[0], append(whole, "torn lin"...), 0o600))
	if list, err := promote.Recover(t.Context(), w.state()); err != nil || len(list) != 1 {
		t.Errorf("torn at its end: %+v %v", list, err)
	}
	if _, err := os.Stat(w.real.Name() + "/a"); err != nil {
		t.Error("a was not brought back:", err)
	}
}
