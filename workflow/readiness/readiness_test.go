package readiness

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/prove"
	"github.com/snapfs/snapfs/internal/hostinfo"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/workflow/evidence"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
	"github.com/snapfs/snapfs/workflow/selftest"
)

// TestAnAnswerNamesWhatIsInTheWay stores results that do not hold, each for another reason.
func TestAnAnswerNamesWhatIsInTheWay(t *testing.T) {
	state := treetest.Dir(t)
	key, err := statement.HostKey(evidence.Dir(state))
	if err != nil {
		t.Fatal(err)
	}
	now, err := ConditionsOf(hostfs.Request{Workspace: "/w", Policy: catalog.Policy{Network: "none"}}, "v1")
	if err != nil {
		t.Fatal(err)
	}
	if a := Current(state, now, MaxAge); a.Ready || a.Reason != "missing" {
		t.Errorf("without a result: %+v", a)
	}
	for _, c := range []struct {
		reason string
		change func(r *Result)
	}{
		{"", func(*Result) {}},
		{"boot", func(r *Result) { r.Boot = "other" }},
		{"kernel", func(r *Result) { r.Kernel = "other" }},
		{"version", func(r *Result) { r.Version = "v0" }},
		{"policy", func(r *Result) { r.Policy = "sha256:00" }},
		{"age", func(r *Result) { r.Up -= (MaxAge + time.Second).Milliseconds() }},
		{"age", func(r *Result) { r.Up += time.Hour.Milliseconds() }}, // measured in the future
		{"not-held", func(r *Result) { r.Points[2].Result = Untried }},
		{"not-held", func(r *Result) { r.Points = r.Points[:3] }},
	} {
		r := &Result{Conditions: now, Up: hostinfo.Uptime().Milliseconds(), Sandbox: "s1", Root: "00"}
		for _, name := range pointNames {
			r.Points = append(r.Points, Point{Name: name, Result: Held})
		}
		c.change(r)
		if err := store(state, key, r); err != nil {
			t.Fatal(err)
		}
		if a := Current(state, now, MaxAge); a.Ready != (c.reason == "") || a.Reason != c.reason {
			t.Errorf("%q: %+v", c.reason, a)
		}
	}
	text, err := os.ReadFile(pathOf(state, now))
	if err != nil {
		t.Fatal(err)
	}
	text[bytes.Index(text, []byte("payload"))+20] ^= 1
	if err := os.WriteFile(pathOf(state, now), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if a := Current(state, now, MaxAge); a.Reason != "damaged" {
		t.Errorf("a changed result: %+v", a)
	}
}

// TestAPolicyHasOneDigest: a value of a variable does not count, a rule does.
func TestAPolicyHasOneDigest(t *testing.T) {
	digest := func(p catalog.Policy) string {
		place, err := ConditionsOf(hostfs.Request{Workspace: "/w", Policy: p}, "v1")
		if err != nil {
			t.Fatal(err)
		}
		return place.Policy
	}
	one := digest(catalog.Policy{Network: "none", Env: []string{"TOKEN=a"}})
	if digest(catalog.Policy{Network: "none", Env: []string{"TOKEN=b"}}) != one {
		t.Error("the digest depends on a value that may be secret")
	}
	if digest(catalog.Policy{Network: "host", Env: []string{"TOKEN=a"}}) == one {
		t.Error("another network has the same digest")
	}
}

// TestOnePointThatDoesNotHoldIsEnough notes reports of self-tests.
func TestOnePointThatDoesNotHoldIsEnough(t *testing.T) {
	held := func(probe string) prove.Report { return prove.Report{Probe: probe, Happened: "refused", Held: true} }
	crossed := prove.Report{Probe: "masked", Happened: "it was read"}
	busy := prove.Report{Probe: "cpus", Happened: "it took long", Busy: true}
	for _, c := range []struct {
		name, want string
		reports    []prove.Report
	}{
		{"all hold", "held held held", []prove.Report{held("masked"), held("ipv4"), held("memory"), busy}},
		{"one is crossed", "not held held held", []prove.Report{crossed, held("mount"), prove.Untried("watch", nil, os.ErrNotExist), held("ipv4"), held("memory")}},
		{"one cannot be tried", "held untried held", []prove.Report{held("masked"), prove.Untried("ipv4", nil, os.ErrNotExist), held("name"), held("memory")}},
		{"nothing tried", "untried untried held", nil},
	} {
		m := Measurement{points: map[string]*Point{}, counts: map[string]count{}}
		for _, name := range pointNames {
			m.points[name] = &Point{Name: name, Result: Untried}
		}
		for _, r := range c.reports {
			m.note(r)
		}
		m.judge()
		got := m.points[selftest.KindIsolation].Result + " " + m.points[selftest.KindNetwork].Result + " " + m.points[selftest.KindLimit].Result
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func BenchmarkCurrent(b *testing.B) {
	state := treetest.Dir(b)
	key, err := statement.HostKey(evidence.Dir(state))
	if err != nil {
		b.Fatal(err)
	}
	now, err := ConditionsOf(hostfs.Request{Workspace: "/w"}, "v1")
	if err != nil {
		b.Fatal(err)
	}
	if err := store(state, key, &Result{Conditions: now}); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		Current(state, now, MaxAge)
	}
}
