package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/workflow/job"
)

// Workers are killed at random instants. Every job ends, none is promoted twice, and nothing is left of any.
// Cost: 5 s; in test-long 40 s.
func TestKilledWorkersLoseNoJob(t *testing.T) { asRoot(t, killedWorkers) }

func TestKilledWorkersOfAnOrdinaryUserLoseNoJob(t *testing.T) { asUserLater(t, killedWorkers) }

func killedWorkers(t *testing.T) {
	b := newDesk(t)
	count := treetest.Budget(t, 10, 100)
	for i := 1; i <= count; i++ {
		// A second run of a promoted job would add a line.
		b.snapfs("job", "submit", "--promote", "--", "sh", "-c", fmt.Sprintf("echo x >> job-%d; sleep 0.0%d", i, i%10)).want(0)
	}
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	kills := 0
	for ; open(b.jobs()) > 0; kills++ {
		cmd := b.command("job", "work", "--once", "--jobs", "3")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(time.Duration(random.IntN(300))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // it was killed, or has ended
		kill.Stop()
	}
	b.snapfs("job", "work", "--once").want(0) // which removes the sandboxes of ended jobs
	t.Logf("seed %d: %d workers", seed, kills)
	done := 0
	for _, j := range b.jobs() {
		name := fmt.Sprintf("job-%d", j.Number)
		text, err := os.ReadFile(filepath.Join(b.workspace, name))
		switch {
		case j.State == job.Done && j.Promotion != "" && string(text) == "x\n":
			done++
		case j.State == job.Failed && strings.Contains(j.Why, "3 workers") && err != nil:
		default:
			t.Errorf("%s is %s (%s), promoted as %q, with %q in its file", name, j.State, j.Why, j.Promotion, text)
		}
	}
	// The last ten promotions can be undone.
	if promoted := strings.Count(b.snapfs("undo", "--list").want(0).stdout, "\n"); promoted != min(done, 10) {
		t.Errorf("%d promotions of %d jobs", promoted, done)
	}
	if t.Failed() {
		t.Log(b.snapfs("events").stdout)
	}
	if left := b.snapfs("ls", "-q").want(0).stdout; left != "" {
		t.Errorf("left: %q", left)
	}
}

// jobs returns all jobs of the state directory.
func (b *desk) jobs() (jobs []job.Job) {
	b.t.Helper()
	if err := json.Unmarshal([]byte(b.snapfs("job", "ls", "--all", "--json").want(0).stdout), &jobs); err != nil {
		b.t.Fatal(err)
	}
	return jobs
}

// open counts the jobs that have not ended, and fails for none that waits: nobody decides here.
func open(jobs []job.Job) (n int) {
	for _, j := range jobs {
		if !j.State.Final() && j.State != job.Waiting {
			n++
		}
	}
	return n
}
