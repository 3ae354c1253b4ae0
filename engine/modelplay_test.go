package engine_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// modelTime is how long each backend is played on; SNAPFS_TEST_LONG may say how
// long instead ("1h").
func modelTime(t *testing.T) time.Duration {
	t.Helper()
	switch d, err := time.ParseDuration(os.Getenv(longEnv)); {
	case err == nil:
		return d
	case long():
		return 5 * time.Minute
	case treetest.Long(t):
		return 10 * time.Second
	}
	return shortPlay
}

// shortPlay is how long make test plays on each backend. It does not wait until each kind of step has been played,
// as make test-long does.
const shortPlay = 300 * time.Millisecond

// A modelPlay plays scripts on one backend until its time is over.
type modelPlay struct {
	*testing.T
	b       *bench
	records *catalog.Catalog
	backend string
	// asks is the backend to ask for.
	asks string
	// frozen: so is the base that it makes.
	frozen bool
	// asked: the command line says which scripts to play.
	asked bool
	tally map[string]int
	took  map[string]time.Duration // all steps of a kind together
	// left is what scripts have left behind, to be told once.
	left []string
	// failed is the shortest script that failed.
	failed *modelFailure
}

// A modelFailure is a script that broke a promise, with what came of each step.
type modelFailure struct {
	script modelScript
	said   []string
	brokenPromise
}

// Logf: rapid's draws are not what a reader looks for; [modelPlay.report] is.
func (p *modelPlay) Logf(string, ...any) {}

// play plays random scripts. Where the command line names a seed or a number of
// scripts, it plays those. Rapid draws them, says the seed and keeps the script;
// what a failing one shrinks to is found by [modelPlay.reduce], because clocks and
// other processes have a say in these failures, and rapid ends when one does not
// show twice in the same words.
func (p *modelPlay) play() {
	began, most := time.Now(), modelTime(p.T)
	patience := most
	if most > shortPlay {
		patience = max(6*most, time.Minute)
	}
	enough := func() bool {
		took := time.Since(began)
		return !p.asked && p.failed == nil && (took > most && len(p.missing()) == 0 || took > patience)
	}
	defer func() { p.report(time.Since(began)) }()
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // a tenth of the time otherwise
	shrinks := flag.Lookup("rapid.shrinktime")
	defer func(was string) { _ = shrinks.Value.Set(was) }(shrinks.Value.String())
	_ = shrinks.Value.Set("0s")
	for again := true; again; again = !p.asked && !enough() {
		rapid.Check(p, func(t *rapid.T) {
			if script := drawScript(t); !enough() && p.breaks(script) {
				t.Fatalf("the script below breaks a promise")
			}
		})
	}
	const few = 50 // a busy machine lets no more be played, which may lack one of them
	if missing := p.missing(); len(missing) > 0 && !p.asked && most > shortPlay && p.tally["scripts"] > few {
		p.Errorf("the scripts say little: there is none in which something was %s", strings.Join(missing, ", "))
	}
}

// breaks plays a script, and reports whether it broke a promise: the same one,
// where one has failed before.
func (p *modelPlay) breaks(script modelScript) (broke bool) {
	m := &model{p: p, b: p.b, boxes: map[string]*modelBox{}, deleted: map[string]int{}, frozen: p.frozen}
	defer m.clear()
	defer func() {
		x := recover()
		switch x.(type) {
		case nil:
			return
		case cutShort:
			p.tally["cut short"]++
			return
		}
		promise, ok := x.(brokenPromise)
		if !ok {
			promise = brokenPromise{"panic", fmt.Sprintf("panic: %v\n%s", x, debug.Stack())}
		}
		if broke = p.failed == nil || p.failed.kind == promise.kind; broke {
			p.failed = &modelFailure{script, m.said, promise}
		}
	}()
	p.tally["scripts"]++
	m.run(script)
	m.leaves()
	return false
}

// missing is what should have come of a script by now.
func (p *modelPlay) missing() []string {
	return slices.DeleteFunc([]string{
		"promoted", "applied", "undone", "refreshed", "rolled back", "conflicting", "failed half-way", "killed half-way",
	}, func(what string) bool { return p.tally[what] > 0 })
}

// report says what was played, and shows the shortest script that failed.
func (p *modelPlay) report(took time.Duration) {
	p.Helper()
	t := p.tally
	p.T.Logf("%s: %d scripts with %d steps in %v, %d of them cut short by what others did",
		p.backend, t["scripts"], t["steps"], took.Round(100*time.Millisecond), t["cut short"])
	for _, list := range [][]string{
		{opUser, opBox, opPromote, opApply, opRefresh, opUndo, opSnapshot, opRollback, opRemove, "in a child"},
		{"promoted", "applied", "undone", "refreshed", "rolled back", "conflicting", "failed half-way", "killed half-way"},
	} {
		var counts []string
		for _, what := range list {
			count := fmt.Sprintf("%s %d", what, t[what])
			if took := p.took[what]; took > 0 {
				count += fmt.Sprintf(" (%.1f ms)", took.Seconds()*1000/float64(t[what]))
			}
			counts = append(counts, count)
		}
		p.T.Logf("  %s", strings.Join(counts, ", "))
	}
	if p.failed != nil {
		p.reduce()
		p.T.Logf("the shortest script found that fails on %s:\n\n%s\n\n%s\n", p.backend, strings.Join(p.failed.said, "\n"), p.failed.what)
	}
}

func (m *model) run(script modelScript) {
	for _, f := range modelFiles() {
		path := filepath.Join(m.b.workspace, f)
		m.must(os.MkdirAll(filepath.Dir(path), 0o755))
		var b strings.Builder
		for i := range modelLines {
			fmt.Fprintf(&b, "line %d\n", i)
		}
		m.must(os.WriteFile(path, []byte(b.String()), 0o644))
	}
	nextTick()
	for i, step := range script {
		m.at, m.step = i+1, step
		m.said = append(m.said, fmt.Sprintf("%3d. %v", m.at, step))
		m.p.tally["steps"]++
		m.p.tally[step.op]++
		if step.later {
			nextTick()
		}
		began := time.Now()
		m.play()
		m.p.took[step.op] += time.Since(began)
	}
}

func (m *model) play() {
	name := m.step.box
	if name != "" && m.boxes[name] == nil {
		m.makes(name)
	}
	switch m.step.op {
	case opUser:
		m.userEdits()
	case opBox:
		m.boxEdits(name)
	case opPromote:
		m.promotes(name)
	case opApply:
		m.applies(name)
	case opRefresh:
		m.refreshes(name)
	case opUndo:
		m.undoes()
	case opSnapshot:
		m.marks(name)
	case opRollback:
		m.goesBack(name)
	case opRemove:
		m.removes(name)
	}
}

// leaves: when all sandboxes are removed, nothing of them is left, whatever
// failed or was killed before.
func (m *model) leaves() {
	ctx := context.Background()
	m.said = append(m.said, "     the sandboxes are removed")
	m.b.Engine, _ = m.b.reopen()
	for _, name := range slices.Sorted(maps.Keys(m.boxes)) {
		m.must(m.b.Remove(ctx, name))
	}
	_, err := m.b.Collect(ctx)
	m.must(err)
	left := m.b.unowned(nil)
	for _, dir := range []string{"active", "trash", "sandboxes"} {
		for _, name := range names(filepath.Join(m.b.state, dir)) {
			left = append(left, filepath.Join(dir, name))
		}
	}
	left = slices.DeleteFunc(left, func(what string) bool { return slices.Contains(m.p.left, what) })
	m.p.left = append(m.p.left, left...)
	if len(left) > 0 {
		m.Fatalf("left behind: %s", strings.Join(left, ", "))
	}
}

// nextTick waits until the clock that files are stamped with has moved on.
func nextTick() {
	now := func() (ts unix.Timespec) {
		_ = unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts)
		return ts
	}
	for was := now(); now() == was; {
		time.Sleep(300 * time.Microsecond)
	}
}

// clear makes room for the next script.
func (m *model) clear() {
	ctx := context.Background()
	m.b.Engine, _ = m.b.reopen()
	for _, name := range slices.Sorted(maps.Keys(m.boxes)) {
		_ = m.b.Remove(ctx, name)
	}
	_ = os.RemoveAll(filepath.Join(m.b.state, "promotions"))
	list, _ := os.ReadDir(m.b.workspace)
	for _, e := range list {
		_ = os.RemoveAll(filepath.Join(m.b.workspace, e.Name()))
	}
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(m.b.workspace), ".snapfs-apply-*"))
	for _, path := range left {
		_ = os.RemoveAll(path)
	}
}
