package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/workflow/race"
)

// asAll runs a test as root on overlay, and in make test-long on btrfs and as an ordinary user too. What differs
// there is how a sandbox is made, and other tests of races run on all of them in make test.
func asAll(t *testing.T, test func(t *testing.T, b *bench)) {
	asBoth(t, test)
	if os.Geteuid() == 0 && treetest.Long(t) {
		onBtrfs(t, test)
	}
}

// tries is a request with an attempt for each script.
func (b *bench) tries(scripts ...string) race.Request {
	req := race.Request{Request: b.request()}
	for _, s := range scripts {
		req.Attempts = append(req.Attempts, b.command(s))
	}
	return req
}

func (b *bench) race(req race.Request) *race.Race {
	b.t.Helper()
	r, err := race.New(b.Engine).Race(b.t.Context(), req)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// over ends a race, and looks for what it left.
func (b *bench) over(r *race.Race) {
	b.t.Helper()
	if err := r.Close(context.Background()); err != nil {
		b.t.Error(err)
	}
	b.sound("after a race")
	names, err := b.Names()
	if err != nil {
		b.t.Error(err)
	}
	for _, a := range r.Attempts {
		if slices.Contains(names, a.Sandbox) != a.Kept {
			b.t.Errorf("sandboxes %v after a race; attempt %d, %s, kept: %v", names, a.Number, a.Sandbox, a.Kept)
		}
		if a.Kept {
			if err := b.Remove(b.t.Context(), a.Sandbox); err != nil {
				b.t.Error(err)
			}
		}
	}
	b.sound("after a race's sandboxes are removed")
}

func states(r *race.Race) (list []race.AttemptState) {
	for _, a := range r.Attempts {
		list = append(list, a.State)
	}
	return list
}

func (b *bench) wantStates(r *race.Race, want ...race.AttemptState) {
	b.t.Helper()
	if !slices.Equal(states(r), want) {
		b.t.Errorf("states %q, want %q: %+v", states(r), want, r.Attempts)
	}
}

func (b *bench) text(path string) string {
	b.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		b.t.Error(err)
	}
	return string(data)
}

func TestEachAttemptRunsInASandboxOfItsOwnOnOneBase(t *testing.T) {
	test := func(t *testing.T, b *bench) {
		b.write("f", "zero\n")
		r := b.race(b.tries(
			`echo "$SNAPFS_ATTEMPT of $SNAPFS_ATTEMPTS"; echo one > f`,
			`echo "$SNAPFS_ATTEMPT of $SNAPFS_ATTEMPTS" >&2; echo two > f; echo x > g`,
			`echo one > f; exit 3`,
		))
		b.wantStates(r, race.Passed, race.Passed, race.Failed)
		for i, want := range []string{"1 of 3\n", "2 of 3\n", ""} {
			if got := b.text(r.Attempts[i].Output); got != want {
				t.Errorf("attempt %d wrote %q, want %q", i+1, got, want)
			}
		}
		if got, want := fmt.Sprint(r.Compared), fmt.Sprint(race.Comparison{
			Paths:     []race.ComparedPath{{Path: "f", Alike: [][]int{{1, 3}, {2}}}, {Path: "g", Alike: [][]int{{2}}}},
			Identical: [][]int{{1, 3}},
		}); got != want {
			t.Errorf("compared: %s, want %s", got, want)
		}
		if s := r.Attempts[1].Size; s == nil || *s != (race.ResultSize{Paths: 2, Added: 2, Deleted: 1}) {
			t.Errorf("the second changed %+v", s)
		}
		if e := r.Attempts[2].Ended; e == nil || e.Status != 3 {
			t.Errorf("the third ended as %+v", e)
		}
		if r.Winner != 0 {
			t.Errorf("%d wins a race without a rule", r.Winner)
		}
		if got := b.text(filepath.Join(b.workspace, "f")); got != "zero\n" {
			t.Errorf("the real file is %q", got)
		}
		b.over(r)
	}
	asEach(t, test)
	if os.Geteuid() == 0 {
		onBtrfs(t, test)
	}
}

// A file of the real tree changes while the race starts: no attempt sees another
// base than the others do.
func TestAllAttemptsHaveTheSameInstant(t *testing.T) {
	treetest.NeedRoot(t)
	onBtrfs(t, func(t *testing.T, b *bench) {
		b.write("n", "0\n")
		stop := make(chan struct{})
		var writer sync.WaitGroup
		writer.Go(func() {
			for i := 1; ; i++ {
				select {
				case <-stop:
					return
				default:
					b.write("n", fmt.Sprintln(i))
				}
			}
		})
		r := b.race(b.tries(slices.Repeat([]string{"cat n"}, 6)...))
		close(stop)
		writer.Wait()
		if !r.Frozen {
			t.Error("the base is live")
		}
		for _, a := range r.Attempts {
			if got, want := b.text(a.Output), b.text(r.Attempts[0].Output); got != want {
				t.Errorf("attempt %d saw %q, the first one %q", a.Number, got, want)
			}
		}
		b.over(r)
	})
}

func TestACheckDecidesAndIsNoPartOfTheResult(t *testing.T) {
	asAll(t, func(t *testing.T, b *bench) {
		time.Sleep(20 * time.Millisecond) // drift is told by the clock of the filesystem
		req := b.tries("echo good > f", "echo bad > f", "exit 1")
		check := b.command(`echo "checking $SNAPFS_ATTEMPT"; mkdir -p build; echo object > build/o; cp f f.tested; echo spoilt >> f; grep -q good f`)
		req.Check = &check
		r := b.race(req)
		b.wantStates(r, race.Passed, race.Failed, race.Failed)
		if got := b.text(r.Attempts[1].CheckOutput); got != "checking 2\n" {
			t.Errorf("the check of attempt 2 wrote %q", got)
		}
		if r.Attempts[0].Checked == nil || r.Attempts[1].Checked.Status != 1 || r.Attempts[2].Checked != nil {
			t.Errorf("checked: %+v", r.Attempts)
		}
		if len(r.Compared.Paths) != 1 || r.Attempts[0].Size.Paths != 1 {
			t.Errorf("what the check wrote is part of the result: %+v", r.Compared)
		}
		if a, err := r.Promote(t.Context(), 1); err != nil || a.Changes != 1 && a.Changes != 2 {
			t.Errorf("promoted %+v, %v", a, err)
		}
		if got := b.text(filepath.Join(b.workspace, "f")); got != "good\n" {
			t.Errorf("the real file is %q", got)
		}
		if list := names(b.workspace); len(list) != 1 {
			t.Errorf("the real workspace holds %v", list)
		}
		b.over(r)
	})
}

func TestWhatAnAttemptLeavesRunningEndsBeforeTheCheck(t *testing.T) {
	asAll(t, func(t *testing.T, b *bench) {
		daemon := "(setsid sh -c 'trap \"\" TERM HUP; while :; do echo x >> f; sleep 0.01; done' >/dev/null 2>&1 &); (setsid sleep 41.75 &) ; sleep 0.05"
		req := b.tries(daemon, daemon)
		check := b.command("a=$(wc -c < f); sleep 0.1; b=$(wc -c < f); test $a = $b && ! ps ax | grep -q '[4]1.75'")
		req.Check = &check
		r := b.race(req)
		b.wantStates(r, race.Passed, race.Passed)
		if aliveWith("41.75") {
			t.Error("a daemon of an attempt outlives the race")
		}
		b.over(r)
	})
}

// aliveWith looks for a process of this machine with this argument.
func aliveWith(arg string) bool {
	for _, pid := range names("/proc") {
		line, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		if strings.Contains(string(line), "\x00"+arg+"\x00") {
			return true
		}
	}
	return false
}

func TestTheFirstThatPassesStopsTheRest(t *testing.T) {
	asAll(t, func(t *testing.T, b *bench) {
		req := b.tries("sleep 42.75", "exit 1", "sleep 1; echo won > f", "sleep 42.75")
		req.First = true
		began := time.Now()
		r := b.race(req)
		b.wantStates(r, race.Stopped, race.Failed, race.Passed, race.Stopped)
		if r.Winner != 3 || time.Since(began) > 10*time.Second || aliveWith("42.75") {
			t.Errorf("winner %d after %v; some run still: %v", r.Winner, time.Since(began), aliveWith("42.75"))
		}
		b.over(r)
	})
}

func TestTheBestScoreWins(t *testing.T) {
	asAll(t, func(t *testing.T, b *bench) {
		for _, lower := range []bool{false, true} {
			req := b.tries("echo 3.5 > n", "echo 12 > n", "echo nan > n", "echo -1e3 > n; exit 1", "echo 2 > n")
			score := b.command("echo told >&2; echo y > n.scored; cat n")
			req.Score, req.Lower = &score, lower
			r := b.race(req)
			b.wantStates(r, race.Passed, race.Passed, race.Failed, race.Failed, race.Passed)
			if want := map[bool]int{false: 2, true: 5}[lower]; r.Winner != want {
				t.Errorf("lower %v: %d wins, want %d", lower, r.Winner, want)
			}
			if why := r.Attempts[2].Why; !strings.Contains(why, `not a number: "nan"`) {
				t.Errorf("why: %q", why)
			}
			if got := b.text(r.Attempts[0].CheckOutput); got != "told\n" {
				t.Errorf("the score complained %q", got)
			}
			b.over(r)
		}
	})
}

func TestAnAttemptThatCannotStartHindersNoOther(t *testing.T) {
	asAll(t, func(t *testing.T, b *bench) {
		req := b.tries("echo 1", "echo 2")
		req.Attempts[0].Args = []string{"/no/such/command"}
		r := b.race(req)
		b.wantStates(r, race.Broken, race.Passed)
		if !strings.Contains(r.Attempts[0].Why, "not found") {
			t.Errorf("why: %q", r.Attempts[0].Why)
		}
		b.over(r)
	})
}

func TestAnAttemptThatTakesTooLongIsEnded(t *testing.T) {
	asAll(t, func(t *testing.T, b *bench) {
		req := b.tries("trap '' TERM INT HUP; sleep 43.75", "true", "true; echo x > f")
		check := b.command("test ! -e f || sleep 43.75")
		req.Check, req.Timeout = &check, 2*time.Second // on a busy machine true takes over a second, too
		r := b.race(req)
		b.wantStates(r, race.TimedOut, race.Passed, race.TimedOut)
		if aliveWith("43.75") {
			t.Error("it runs on")
		}
		b.over(r)
	})
}

func TestNoMoreThanJobsRunAtOnce(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		req := b.tries(slices.Repeat([]string{"sleep 0.03"}, 6)...)
		req.Jobs = 2
		now, most := map[int]bool{}, 0
		req.Progress = func(a race.Attempt) {
			delete(now, a.Number)
			if a.State == race.Running {
				now[a.Number] = true
			}
			most = max(most, len(now))
		}
		r := b.race(req)
		if most != 2 || len(r.Passed()) != 6 {
			t.Errorf("%d ran at once, %v passed", most, r.Passed())
		}
		b.over(r)
	})
}

func TestALongOutputIsKeptWhole(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		line := strings.Repeat("=", 70)
		script := "i=0; while [ $i -lt 1000 ]; do i=$((i+1)); echo $SNAPFS_ATTEMPT $i " + line + "; done; echo again > /proc/self/fd/2"
		r := b.race(b.tries(slices.Repeat([]string{script}, 4)...))
		for _, a := range r.Attempts {
			var want strings.Builder
			for i := range 1000 {
				fmt.Fprintln(&want, a.Number, i+1, line)
			}
			if got := b.text(a.Output); a.State != race.Passed || got != want.String()+"again\n" {
				t.Errorf("attempt %d, %s, wrote %d bytes, want %d; the end: %q", a.Number, a.State, len(got), want.Len(), got[max(0, len(got)-200):])
			}
		}
		b.over(r)
	})
}

func TestAnInterruptedRaceLeavesNothing(t *testing.T) {
	asAll(t, func(t *testing.T, b *bench) {
		ctx, cancel := context.WithCancel(t.Context())
		req := b.tries(slices.Repeat([]string{"(setsid sleep 44.75 &); trap '' TERM; sleep 44.75"}, 4)...)
		running := 0
		req.Jobs = 3
		req.Progress = func(a race.Attempt) {
			if running++; running == 3 {
				time.AfterFunc(50*time.Millisecond, cancel)
			}
		}
		_, err := race.New(b.Engine).Race(ctx, req)
		if !errors.Is(errs.KindOf(err), errs.ErrInterrupted) || aliveWith("44.75") {
			t.Errorf("%v; some run still: %v", err, aliveWith("44.75"))
		}
		b.sound("after an interrupted race")
		if left, err := b.Names(); len(left) > 0 || err != nil {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

func TestTwoRacesInOneWorkspace(t *testing.T) {
	asAll(t, func(t *testing.T, b *bench) {
		times(2, func(i int) {
			req := b.tries(slices.Repeat([]string{"echo $SNAPFS_ATTEMPT > f"}, 4)...)
			check := b.command("test $(cat f) = $SNAPFS_ATTEMPT")
			req.Check = &check
			r, err := race.New(b.Engine).Race(t.Context(), req)
			if err != nil {
				t.Error(err)
				return
			}
			if len(r.Passed()) != 4 {
				t.Errorf("race %d: %+v", i, r.Attempts)
			}
			if err := r.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		b.sound("after two races")
	})
}

// One attempt is kept and the first, whose base it has, is removed.
func TestAKeptAttemptOutlivesTheOthers(t *testing.T) {
	asAll(t, func(t *testing.T, b *bench) {
		b.write("f", "zero\n")
		req := b.tries("echo 1 > f", "echo 2 > f", "true")
		req.Name = "fix"
		check := b.command("touch built")
		req.Check = &check
		r := b.race(req)
		name, err := r.Keep(t.Context(), 2)
		if err != nil || name != "fix-2" {
			t.Fatal(name, err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		b.sound("with a kept attempt")
		if got := b.in("fix-2", "cat f; ls"); got != "2\nf\n" {
			t.Errorf("it holds %q", got)
		}
		c, err := b.Compare.Diff(t.Context(), "fix-2", "", "")
		if err != nil || c.Len() != 1 && c.Len() != 2 {
			t.Errorf("its difference: %+v, %v", c, err)
		}
		c.Close()
		b.over(r)
	})
}

func TestATakenNameStopsARaceBeforeItStarts(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.new("fix-3")
		req := b.tries("touch ran", "touch ran", "touch ran", "touch ran")
		req.Name = "fix"
		req.Progress = func(a race.Attempt) { t.Errorf("attempt %d is %s", a.Number, a.State) }
		if _, err := race.New(b.Engine).Race(t.Context(), req); !errors.Is(err, errs.ErrExists) {
			t.Error(err)
		}
		b.sound("after a race that could not start")
		if left, err := b.Names(); len(left) != 1 || err != nil {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

func TestASecondWinnerMeetsTheFirst(t *testing.T) {
	asAll(t, func(t *testing.T, b *bench) {
		b.write("f", "zero\n")
		b.write("long", "1\n2\n3\n4\n5\n6\n7\n8\n9\n")
		time.Sleep(20 * time.Millisecond) // drift is told by the clock of the filesystem
		r := b.race(b.tries("echo 1 > f; sed -i s/2/two/ long", "echo 2 > f", "echo 3 > g; sed -i s/8/eight/ long"))
		for n := range 3 { // before the real tree moves, on a live base
			if _, err := r.Keep(t.Context(), n+1); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.Promote(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Promote(t.Context(), 3); err != nil {
			t.Errorf("of other lines: %v", err)
		}
		_, err := r.Promote(t.Context(), 2)
		if kind := errs.KindOf(err); !errors.Is(kind, errs.ErrDrifted) && !errors.Is(kind, errs.ErrConflict) {
			t.Errorf("of the same file: %v", err)
		}
		if f, g := b.text(filepath.Join(b.workspace, "f")), b.text(filepath.Join(b.workspace, "g")); f != "1\n" || g != "3\n" {
			t.Errorf("the real files hold %q and %q", f, g)
		}
		if got := b.read("long"); got != "1\ntwo\n3\n4\n5\n6\n7\neight\n9\n" {
			t.Errorf("what both changed, in different lines, holds %q", got)
		}
		if !r.Attempts[1].Kept {
			t.Error("the one that conflicts is not kept")
		}
		b.over(r)
	})
}

func TestDriftDuringARaceIsTold(t *testing.T) {
	asAll(t, func(t *testing.T, b *bench) {
		b.write("f", "zero\n")
		b.write("g", "zero\n")
		time.Sleep(20 * time.Millisecond)
		req := b.tries("echo 1 > f; sleep 0.2", "echo 1 > h; sleep 0.2")
		req.Progress = func(a race.Attempt) {
			if a.Number == 1 && a.State == race.Running {
				b.write("f", "mine\n")
				b.write("g", "mine\n")
			}
		}
		r := b.race(req)
		for i, both := range []int{1, 0} {
			if d := r.Attempts[i].Drift; d == nil || *d != (race.ResultDrift{Paths: 2, Both: both}) {
				t.Errorf("drift of attempt %d: %+v", i+1, d)
			}
		}
		b.over(r)
	})
}

// The outputs of the last ten races stay, and those of no other.
func TestOutputsOfOldRacesGo(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		var last *race.Race
		for range 13 {
			last = b.race(b.tries("echo x"))
			if err := last.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := len(names(filepath.Join(b.state, "races"))); got != 10 {
			t.Errorf("outputs of %d races are there", got)
		}
		if b.text(last.Attempts[0].Output) != "x\n" {
			t.Error("the last one's are gone")
		}
	})
}
