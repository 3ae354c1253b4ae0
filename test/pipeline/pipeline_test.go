package pipeline

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// both runs a test as root and as an ordinary user.
func both(t *testing.T, test func(t *testing.T, l *line)) {
	root(t, test)
	user(t, test)
}

// rootFirst runs a test as root, and in make test-long as an ordinary user too. An ordinary user runs the user's half
// in make test.
func rootFirst(t *testing.T, test func(t *testing.T, l *line)) {
	root(t, test)
	if os.Geteuid() != 0 || treetest.Long(t) {
		user(t, test)
	}
}

func root(t *testing.T, test func(t *testing.T, l *line)) {
	t.Run("root", func(t *testing.T) {
		treetest.NeedRoot(t)
		test(t, newLine(t))
	})
}

func user(t *testing.T, test func(t *testing.T, l *line)) {
	t.Run("user", func(t *testing.T) {
		if treetest.AsUser(t) {
			test(t, newLine(t))
		}
	})
}

// TestAChangeGoesThroughFiveStages: each keeps what is its own, and those that ask
// wait until somebody has seen their plan.
func TestAChangeGoesThroughFiveStages(t *testing.T) {
	both(t, func(t *testing.T, l *line) {
		l.snapfs("stages").want(0).says("4. staging: applies the changes to "+l.place("staging"), "requires approval of its plan")
		l.snapfs("promote", "fix", "--to", "production").want(10).says("stage staging: it waits for approval", "hint: snapfs promote --continue ")
		l.stand(3)
		l.snapfs("promote", "fix", "--to", "dev").want(4).says("waits for approval of stage staging")
		l.snapfs("promote", "--continue").want(10)
		l.snapfs("promote", "--continue", "--approve").want(10).says("stage production: it waits for approval")
		l.stand(4)
		l.snapfs("promote", "--continue", "fix", "--approve").want(0)
		l.stand(5)
		if got, want := l.results(), "sandbox=done dev=done test=done staging=done production=done"; got != want {
			t.Errorf("history: %s", got)
		}
		for _, h := range l.history() {
			asks := h.Stage == "staging" || h.Stage == "production"
			if h.Approved == "" || h.Asked != asks || h.Took <= 0 || (h.Promotion == "") != (h.Stage == "sandbox") {
				t.Errorf("history: %+v", h)
			}
		}
		l.snapfs("promote", "--continue").want(3)
		l.snapfs("undo").want(0)
		l.stand(4)
	})
}

// TestAStageThatFailsIsTakenBackAlone: before and after each. Those before it keep
// what they got, those after it are untouched, and once it is mended the same goes
// through.
func TestAStageThatFailsIsTakenBackAlone(t *testing.T) {
	rootFirst(t, func(t *testing.T, l *line) {
		for i, stage := range stages() {
			for _, when := range []string{"before", "after"} {
				if stage == "sandbox" && when == "after" {
					continue // it carries nothing
				}
				l.inject("fail:" + stage + "." + when)
				o := l.through(stage).want(9).says("stage "+stage+": ./check: exit status 1", "| told to fail")
				if taken := strings.Contains(o.all, "the stage was taken back"); taken != (when == "after") {
					t.Errorf("%s.%s:\n%s", stage, when, o.all)
				}
				l.stand(i)
				history := l.history()
				if last := history[len(history)-1]; last.Stage != stage || last.Why == "" {
					t.Errorf("%s.%s: history: %+v", stage, when, last)
				}
			}
			l.inject("")
			l.through(stage).want(0)
			l.stand(i + 1)
		}
	})
}

// through promotes up to a stage, and approves whatever asks.
func (l *line) through(stage string) outcome {
	l.t.Helper()
	o := l.snapfs("promote", "fix", "--to", stage)
	for o.status == 10 {
		o = l.snapfs("promote", "--continue", "--approve")
	}
	return o
}

// TestAKilledPromotionGoesOn: killed with its check before and after each stage
// running, nothing is left running and the rest is done, once.
func TestAKilledPromotionGoesOn(t *testing.T) {
	rootFirst(t, func(t *testing.T, l *line) {
		for i, stage := range stages() {
			for _, when := range []string{"before", "after"} {
				if stage == "sandbox" && when == "after" {
					continue
				}
				args := []string{"promote", "fix", "--to", stage}
				if stage == "staging" || stage == "production" {
					for l.snapfs(args...).status == 10 && !l.waitsAt(stage) {
						args = []string{"promote", "--continue", "--approve"}
					}
					args = []string{"promote", "--continue", "--approve"}
				}
				l.killedAt(stage+"."+when, args...)
				reached := i
				if when == "after" {
					reached = i + 1
				}
				l.stand(reached)
				if got := l.results(); !strings.HasSuffix(got, "!") {
					t.Errorf("%s.%s: history: %s", stage, when, got)
				}
				l.snapfs("promote", "--continue").want(0)
				l.stand(i + 1)
				if stage != "sandbox" && when == "before" { // once more, for after
					l.snapfs("undo").want(0)
					l.stand(i)
				}
			}
		}
		if left, err := filepath.Glob("/proc/[0-9]*"); err == nil {
			for _, path := range left {
				if env, _ := os.ReadFile(path + "/environ"); strings.Contains(string(env), "SNAPFS_TARGET="+filepath.Dir(l.dir)) {
					t.Errorf("%s still runs", path)
				}
			}
		}
		if got := l.snapfs("ls", "-q").want(0).stdout; got != "fix\n" {
			t.Errorf("sandboxes: %q", got)
		}
	})
}

// waitsAt reports whether a stage is the one that waits.
func (l *line) waitsAt(stage string) bool {
	history := l.history()
	last := history[len(history)-1]
	return last.Stage == stage && last.Result == "waiting"
}
