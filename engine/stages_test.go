package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/engine/stages"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/workflow/pipeline"
)

// stageNames are those of the profile that these tests promote through: one that
// only checks, the workspace itself, and three directories beside it.
func stageNames() []string { return []string{"sandbox", "dev", "test", "staging", "production"} }

// place is the directory of a stage.
func (b *bench) place(stage string) string {
	if stage == "sandbox" || stage == "dev" {
		return b.workspace
	}
	return filepath.Join(filepath.Dir(b.workspace), "targets", stage)
}

// profile is one in which extra says more of some stages.
func (b *bench) profile(extra map[string]string) (*policy.Profile, error) {
	var text strings.Builder
	for _, name := range stageNames() {
		text.WriteString("[[stage]]\nname = \"" + name + "\"\n")
		if name != "sandbox" {
			text.WriteString("target = \"" + b.place(name) + "\"\n")
		}
		more := extra[name]
		if !strings.Contains(more, "before") {
			more += "\nbefore = [\"grep -q new conf && test ! -e gone\"]"
		}
		if !strings.Contains(more, "after") && name != "sandbox" {
			more += "\nafter = [\"grep -q new conf && test ! -e gone\"]"
		}
		text.WriteString(more + "\n")
	}
	return policy.Parse(filepath.Join(b.workspace, policy.Name), []byte(text.String()))
}

// through promotes "s" through the stages.
func (b *bench) through(to string, extra map[string]string) (*stages.Pipeline, error) {
	profile, err := b.profile(extra)
	if err != nil {
		return nil, err
	}
	return pipeline.New(b.Engine).PromoteStages(b.t.Context(), "s", pipeline.StageOptions{Profile: profile, To: to})
}

// line sets a workspace up, with its targets, and a sandbox "s" that changes it.
// Each target has an edit of its own, which must stay.
func (b *bench) line() {
	b.t.Helper()
	b.write("conf", lines(12, nil))
	b.write("gone", "0")
	for _, name := range stageNames()[2:] {
		dir := b.place(name)
		if err := errors.Join(
			os.MkdirAll(dir, 0o755),
			os.WriteFile(filepath.Join(dir, "conf"), []byte(lines(12, map[int]string{10: name + "\n"})), 0o644),
			os.WriteFile(filepath.Join(dir, "gone"), []byte("0"), 0o644),
			os.WriteFile(filepath.Join(dir, "own"), []byte(name), 0o644),
		); err != nil {
			b.t.Fatal(err)
		}
	}
	tick()
	b.new("s")
	b.in("s", "sed -i 's/line b/new/' conf; rm gone; mkdir d; printf 2 > d/added")
	if err := b.Supervise.Stop(b.t.Context(), "s"); err != nil {
		b.t.Fatal(err)
	}
	b.changed("s", "", "")
	tick()
}

// stands checks what a stage's directory holds: what it was, or what the sandbox
// made of it.
func (b *bench) stands(stage string, promoted bool) {
	b.t.Helper()
	if stage == "sandbox" {
		return
	}
	but := map[int]string{}
	if stage != "dev" {
		but[10] = stage + "\n"
		if own, err := os.ReadFile(filepath.Join(b.place(stage), "own")); err != nil || string(own) != stage {
			b.t.Errorf("%s: its own file holds %q, %v", stage, own, err)
		}
	}
	if promoted {
		but[1] = "new\n"
	}
	conf, err := os.ReadFile(filepath.Join(b.place(stage), "conf"))
	if want := lines(12, but); err != nil || string(conf) != want {
		b.t.Errorf("%s, promoted %v: conf is %q, want %q, %v", stage, promoted, conf, want, err)
	}
	for name, there := range map[string]bool{"gone": !promoted, "d/added": promoted, "d": promoted} {
		if _, err := os.Lstat(filepath.Join(b.place(stage), name)); (err == nil) != there {
			b.t.Errorf("%s, promoted %v: %s: %v", stage, promoted, name, err)
		}
	}
	list, err := os.ReadDir(b.place(stage))
	for _, entry := range list {
		if strings.HasPrefix(entry.Name(), ".snapfs-apply-") && !promoted {
			b.t.Errorf("%s: left: %s", stage, entry.Name())
		}
	}
	if err != nil {
		b.t.Error(err)
	}
}

func TestStagesArePromotedInOrder(t *testing.T) { everywhere(t, stagesArePromotedInOrder) }

func stagesArePromotedInOrder(t *testing.T, b *bench) {
	b.line()
	p, err := b.through("test", nil)
	if err != nil {
		t.Fatal(err)
	}
	if p.State != stages.PipelineDone || len(p.Stages) != 3 {
		t.Errorf("%+v", p)
	}
	for i, name := range stageNames() {
		b.stands(name, i <= 2)
	}
	// Going further goes over those that are done, where there is nothing to do.
	if p, err = b.through("production", nil); err != nil {
		t.Fatal(err)
	}
	for i, name := range stageNames() {
		b.stands(name, true)
		if s := p.Stages[i]; s.State != stages.StageDone || (s.Promotion != "") != (i >= 3) {
			t.Errorf("%s: %+v", name, s)
		}
	}
	b.sound("promoted")
}

// TestAStageThatCannotBeTakenBackSaysSo: its check has changed what was promoted,
// which is somebody's work now. Nothing of it is lost.
func TestAStageThatCannotBeTakenBackSaysSo(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.line()
		p, err := b.through("staging", map[string]string{"test": `after = ["echo mine > d/added; exit 1"]`})
		var stage *pipeline.StageError
		if !errors.As(err, &stage) || stage.State != stages.StageStuck || !strings.Contains(err.Error(), "d/added") || len(stage.Next) != 1 {
			t.Fatalf("%v, %+v", err, stage)
		}
		if added, err := os.ReadFile(filepath.Join(b.place("test"), "d/added")); string(added) != "mine\n" {
			t.Errorf("d/added: %q, %v", added, err)
		}
		b.stands("dev", true)
		b.stands("staging", false)
		if _, err := pipeline.New(b.Engine).ContinueStages(t.Context(), p.ID, pipeline.ContinueOptions{}); !errors.Is(err, errs.ErrNotFound) {
			t.Errorf("it has ended: %v", err)
		}
	})
}

// TestAnApprovalIsForOnePlan: where the target has moved on since, it is asked for
// again; and a conflict ends the stage before anything is touched.
func TestAnApprovalIsForOnePlan(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.line()
		write := func(text string) {
			tick()
			if err := os.WriteFile(filepath.Join(b.place("test"), "conf"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			tick()
		}
		p, err := b.through("test", map[string]string{"test": `approval = "ask"`})
		if !errors.Is(err, pipeline.ErrWaiting) {
			t.Fatal(err)
		}
		write(lines(12, map[int]string{10: "test\n", 11: "another\n"}))
		if _, err := pipeline.New(b.Engine).ContinueStages(t.Context(), p.ID, pipeline.ContinueOptions{Approve: true}); !errors.Is(err, pipeline.ErrWaiting) {
			t.Errorf("approved another plan: %v", err)
		}
		write(lines(12, map[int]string{1: "theirs\n", 10: "test\n"}))
		_, err = pipeline.New(b.Engine).ContinueStages(t.Context(), p.ID, pipeline.ContinueOptions{Approve: true})
		if !errors.Is(err, errs.ErrConflict) {
			t.Errorf("conflict: %v", err)
		}
		if got, _ := os.ReadFile(filepath.Join(b.place("test"), "conf")); string(got) != lines(12, map[int]string{1: "theirs\n", 10: "test\n"}) {
			t.Errorf("conf: %q", got)
		}
		all, err := pipeline.New(b.Engine).History()
		if err != nil || len(all) != 3 || all[0].Result != stages.StageFailed {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// TestInterruptedStagesGoOn: with Ctrl-C while a check runs, nothing has failed.
func TestInterruptedStagesGoOn(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.line()
		ctx, cancel := context.WithCancel(t.Context())
		profile, err := b.profile(map[string]string{"test": "before = [\"test -e go || sleep 100\"]\nafter = [\"test -e go || sleep 100\"]"})
		if err != nil {
			t.Fatal(err)
		}
		o := pipeline.StageOptions{Profile: profile, To: "test"}
		o.Tell = func(stage, what string) {
			if stage == "test" && strings.HasPrefix(what, "checking") {
				time.AfterFunc(200*time.Millisecond, cancel)
			}
		}
		_, err = pipeline.New(b.Engine).PromoteStages(ctx, "s", o)
		if !errors.Is(err, errs.ErrInterrupted) {
			t.Fatal(err)
		}
		b.stands("test", false)
		if err := os.WriteFile(filepath.Join(b.place("test"), "go"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		p, err := pipeline.New(b.Engine).ContinueStages(t.Context(), "s", pipeline.ContinueOptions{})
		if err != nil || p.State != stages.PipelineDone {
			t.Errorf("%+v, %v", p, err)
		}
		b.stands("test", true)
		b.sound("interrupted")
	})
}

// throughStages is the life of a child that promotes and is killed.
func throughStages(ctx context.Context, b *bench) error {
	profile, err := b.profile(nil)
	if err == nil {
		_, err = pipeline.New(b.Engine).PromoteStages(ctx, "s", pipeline.StageOptions{Profile: profile, To: "test"})
	}
	return err
}

// stepsOfStages are the names of the steps that promoting through stages makes.
func (b *bench) stepsOfStages() (steps []string) {
	b.t.Helper()
	armed := false
	var several sync.Mutex // do their steps at once
	ctx := treetest.WithFaults(b.t.Context(), func(step string) error {
		several.Lock()
		defer several.Unlock()
		if armed {
			steps = append(steps, step)
		}
		return nil
	})
	e, err := engine.Open(ctx, engine.Config{State: b.state, Drivers: drivers(), Supervisor: []string{"/proc/self/exe", "keeper"}})
	if err == nil {
		armed = true
		err = throughStages(ctx, &bench{Engine: e, t: b.t, workspace: b.workspace, state: b.state})
	}
	if err != nil || len(steps) < 20 {
		b.t.Fatalf("%q, %v", steps, err)
	}
	return steps
}

// TestStagesGoOnWhereverTheyWereKilled: at steps spread over all of them, and
// where a promotion is done that nothing but its journal knows of, the rest is
// done by the next command, once, and nothing is left.
func TestStagesGoOnWhereverTheyWereKilled(t *testing.T) {
	everyone := func(t *testing.T, b *bench) {
		b.line()
		steps := b.stepsOfStages()
		spread := len(steps) / treetest.Budget(t, 2, 12)
		tried, killed := 0, 0
		for i, step := range steps {
			if i%spread == 0 || step == "enter "+string(stages.StageVerifying) || step == "write the baseline" {
				tried++
				if b.killedStages(i+1, step) {
					killed++
				}
			}
		}
		if killed*2 < tried { // what is done at once comes in another order
			t.Errorf("of %d steps to be killed at only %d were reached", tried, killed)
		}
	}
	t.Run("root", func(t *testing.T) {
		treetest.NeedRoot(t)
		everyone(t, newBench(t))
	})
	if later(t) {
		onBtrfs(t, everyone)
	}
}

// killedStages kills a promotion at its n-th step, and goes on with it. It
// answers whether there was such a step.
func (b *bench) killedStages(n int, step string) (killed bool) {
	b.t.Helper()
	b.unpromote()
	o := b.child("stages", n, "kill")
	// How many steps there are is a matter of time too: of a keeper that has
	// ended, for one, nothing is asked.
	through := !o.killed && o.err == nil && o.steps < n
	if !o.killed && !through {
		b.t.Fatalf("step %d, %s: %v", n, step, o.err)
	}
	e, said := b.reopen()
	open := 0
	all, err := e.Stages.Pipelines()
	for _, p := range all {
		if p.State == stages.PipelineOpen {
			open++
		}
	}
	switch {
	case err != nil || open > 1:
		b.t.Fatalf("step %d, %s: %d open, %v", n, step, open, err)
	case through && open == 0:
	case open == 1:
		_, err = pipeline.New(e).ContinueStages(b.t.Context(), "", pipeline.ContinueOptions{})
	default:
		_, err = b.through("test", nil)
	}
	if err != nil {
		b.t.Errorf("step %d, %s: %v, %q", n, step, err, *said)
	}
	for i, name := range stageNames() {
		b.stands(name, i <= 2)
	}
	b.sound(fmt.Sprintf("killed at step %d, %s", n, step))
	return o.killed
}

// unpromote takes everything back.
func (b *bench) unpromote() {
	b.t.Helper()
	for {
		_, err := b.Reconcile.Undo(b.t.Context(), "")
		if errors.Is(err, errs.ErrNotFound) {
			break
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
	for _, name := range stageNames() {
		b.stands(name, false)
	}
}
