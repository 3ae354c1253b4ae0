package engine_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/reconcile"
)

// keptOf is what is kept of the base of a sandbox.
func (b *bench) keptOf(name string) string {
	data, _ := os.ReadFile(filepath.Join(b.state, "sandboxes", name, "bases", "0", "kept"))
	return string(data)
}

func TestWhatALiveBaseHeldIsKeptOnceItsSandboxHasChangedIt(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.write("text", "base\n")
		b.write("gone", "base\n")
		b.write("binary", "\x00base")
		b.write("untouched", "base\n")
		tick()
		b.new("s")
		b.in("s", "echo mine > text; rm gone; printf x > binary; echo new > new")
		for start := time.Now(); b.keptOf("s") == "" && time.Since(start) < 10*time.Second; {
			time.Sleep(5 * time.Millisecond) // its keeper is not waited for
		}
		kept := b.keptOf("s")
		for _, name := range []string{"text", "gone", "binary", "new"} {
			if !strings.Contains(kept, filepath.Join(b.workspace, name)+`"`) {
				t.Errorf("%s is not kept: %s", name, kept)
			}
		}
		if strings.Contains(kept, "untouched") {
			t.Error("what the sandbox did not touch is kept")
		}
		blobs, err := filepath.Glob(filepath.Join(b.state, "sandboxes/s/bases/0/*"))
		if err != nil || len(blobs) != 2 {
			t.Errorf("the list and one text, equal ones once: %v, %v", blobs, err)
		}
		if _, err := b.Fork(t.Context(), "s", "", "child"); err != nil {
			t.Fatal(err)
		}
		b.removeLater("child")
		if b.keptOf("child") != kept {
			t.Error("a fork has not inherited it")
		}
		b.write("text", "real\n")
		tick()
		for _, name := range []string{"s", "child"} {
			plan, err := b.Reconcile.PlanOf(t.Context(), name, reconcile.PlanOptions{})
			if err != nil || len(plan.Conflicts) != 1 || plan.Conflicts[0].Kind != "content" {
				t.Errorf("%s: %+v, %v: want one conflict of a known base", name, plan, err)
			}
		}
		if err := b.Remove(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(filepath.Join(b.state, "sandboxes/s")); err == nil {
			t.Error("it outlives the sandbox")
		}
	})
}

func TestWhatTheUserChangedFirstIsAnHonestConflict(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.write("text", "base\n")
		tick()
		b.new("s")
		tick()
		b.write("text", "real\n")
		b.in("s", "echo mine > text")
		plan, err := b.Reconcile.PlanOf(t.Context(), "s", reconcile.PlanOptions{})
		if err != nil || len(plan.Steps) > 0 || len(plan.Conflicts) != 1 || plan.Conflicts[0].Kind != "no-base" {
			t.Errorf("%+v, %v", plan, err)
		}
	})
}

// BenchmarkPlan plans 100 changed files of 100,000, in ten directories and in a
// hundred, beside reading and hashing those files thrice.
func BenchmarkPlan(b *testing.B) {
	b.Run("in 10 directories", func(b *testing.B) { planHundred(b, 10) })
	b.Run("in 100 directories", func(b *testing.B) { planHundred(b, 100) })
}

func planHundred(b *testing.B, dirs int) {
	bench := newBench(b)
	content := strings.Repeat("a line of a text that is not very long\n", 200)
	for i := range 1000 {
		dir := filepath.Join(bench.workspace, fmt.Sprint("d", i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		for j := range 100 {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("f", j)), []byte(content), 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	tick()
	bench.new("s")
	bench.in("s", fmt.Sprintf("for i in $(seq 1 %d); do for j in $(seq 1 %d); do sed -i 's/not/NOT/' d$i/f$j; done; done", dirs, 100/dirs))
	if err := bench.Supervise.Stop(b.Context(), "s"); err != nil {
		b.Fatal(err)
	}
	b.Run("plan", func(b *testing.B) {
		for b.Loop() {
			if p, err := bench.Reconcile.PlanOf(b.Context(), "s", reconcile.PlanOptions{}); err != nil || len(p.Steps) < 100 {
				b.Fatal(err)
			}
		}
	})
	b.Run("read and hash thrice", func(b *testing.B) {
		for b.Loop() {
			for i := range 300 {
				dir, file := 1+i%dirs, 1+i/dirs%(100/dirs)
				hashFile(b, filepath.Join(bench.workspace, fmt.Sprint("d", dir), fmt.Sprint("f", file)))
			}
		}
	})
}

func hashFile(b *testing.B, path string) {
	b.Helper()
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if _, err := io.Copy(sha256.New(), f); err != nil {
		b.Fatal(err)
	}
}
