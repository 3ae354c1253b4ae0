//go:build linux && suites

package suites

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

func TestMain(m *testing.M) {
	os.Exit(treetest.WithProgram(m.Run, func(context.Context, string) error { return nil }))
}

// A job is a unit in a place.
type job struct {
	unit  unit
	place string
}

// TestForeignSuitesInSandboxes compares each unit in each place with the same unit on the bare disk.
//
// SNAPFS_SUITES is "SECONDS SEED": no unit begins after that time, for which the seed orders the jobs. Without it
// all of them run. SNAPFS_SUITES_ONLY is a regular expression for "PLACE UNIT".
func TestForeignSuitesInSandboxes(t *testing.T) {
	treetest.NeedProgram(t, "stress-ng", "/usr/bin/python3.11")
	treetest.NeedDevice(t, "/dev/fuse")
	var seconds, seed uint64
	if some := os.Getenv("SNAPFS_SUITES"); some != "" {
		if _, err := fmt.Sscan(some, &seconds, &seed); err != nil {
			t.Fatalf("SNAPFS_SUITES=%q: %v", some, err)
		}
		t.Logf("SNAPFS_SUITES=%q", some)
	}
	until := time.Now().Add(time.Duration(seconds) * time.Second)
	if os.Geteuid() != 0 {
		t.Run("user", func(t *testing.T) { compareAll(t, seed, until) })
		return
	}
	t.Run("root", func(t *testing.T) {
		compareAll(t, seed, until.Add(-time.Duration(seconds)*time.Second/3))
	})
	t.Run("user", func(t *testing.T) {
		left := fmt.Sprintf("SNAPFS_SUITES=%d %d", max(1, int(time.Until(until).Seconds())), seed)
		if seconds == 0 {
			left = "SNAPFS_SUITES="
		}
		treetest.RunAs(t, treetest.User(t), t.Name(), treetest.WithFUSE(), treetest.WithEnv(left))
	})
}

// compareAll runs the jobs, two at a time, until all have run, or with a seed until that time.
func compareAll(t *testing.T, seed uint64, until time.Time) {
	treetest.Leaks(t)
	list := readDifferences(t)
	units, err := allUnits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g := newGround(t)
	jobs := g.jobs(units)
	if seed != 0 {
		jobs = shuffled(slices.DeleteFunc(jobs, func(j job) bool { return j.unit.heavy }), seed)
	}
	var mu sync.Mutex
	var wait sync.WaitGroup
	next, began := 0, time.Now()
	for range 2 {
		wait.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(jobs) || seed != 0 && i > 0 && time.Now().After(until) {
					return
				}
				one(t, g, list, jobs[i])
			}
		})
	}
	wait.Wait()
	t.Logf("%d of %d jobs in %.0f s", min(next, len(jobs)), len(jobs), time.Since(began).Seconds())
}

// one runs a job and fails the test for what is wrong twice: some tests of others depend on how busy the machine is.
func one(t *testing.T, g *ground, list []difference, j job) {
	began := time.Now()
	err := built(t.Context(), j.unit)
	var counts string
	var lines []string
	if err == nil {
		counts, lines, err = g.compare(list, j.unit, j.place)
	}
	if err != nil || len(lines) > 0 {
		t.Logf("%s %s: once more: %v %q", j.place, j.unit.name, err, lines)
		g.forget(j.unit)
		first, broken := lines, err != nil
		counts, lines, err = g.compare(list, j.unit, j.place)
		lines = slices.DeleteFunc(lines, func(line string) bool { return !broken && !slices.Contains(first, line) })
	}
	if err != nil {
		t.Errorf("%s %s: %v", j.place, j.unit.name, err)
		return
	}
	if len(lines) > 0 {
		t.Errorf("%s %s: in testdata/differences.txt nothing or something else is listed:\n%s", j.place, j.unit.name, strings.Join(lines, "\n"))
	}
	t.Logf("%s %s: %s, %.1f s", j.place, j.unit.name, counts, time.Since(began).Seconds())
}

// jobs returns each unit in each of its places that is on this ground.
func (g *ground) jobs(units []unit) []job {
	only := regexp.MustCompile(os.Getenv("SNAPFS_SUITES_ONLY"))
	var list []job
	for _, u := range units {
		if pkg, ok := strings.CutPrefix(u.name, "go/"); ok && g.user == "user" && !exists(testProgram(pkg)) {
			continue // root has run other packages in its time
		}
		for _, place := range g.places() {
			if (u.places == nil || slices.Contains(u.places, place)) && only.MatchString(place+" "+u.name) {
				list = append(list, job{u, place})
			}
		}
	}
	return list
}

// shuffled orders jobs by a seed, and takes one of each suite in turn.
func shuffled(jobs []job, seed uint64) []job {
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(jobs), func(i, j int) { jobs[i], jobs[j] = jobs[j], jobs[i] })
	turn := map[string]int{}
	place := make(map[string]int, len(jobs))
	for _, j := range jobs {
		place[j.place+" "+j.unit.name] = turn[j.unit.suite]
		turn[j.unit.suite]++
	}
	slices.SortStableFunc(jobs, func(a, b job) int {
		return place[a.place+" "+a.unit.name] - place[b.place+" "+b.unit.name]
	})
	return jobs
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
