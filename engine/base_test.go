package engine_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/isolate"
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
		if err != nil || len(blobs) != 3 {
			t.Errorf("the window, the list and one text, equal ones once: %v, %v", blobs, err)
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

// What a person changed before the command started is what the sandbox began with.
func TestWhatTheUserChangedBeforeTheSandboxIsItsBase(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.write("text", "base\n")
		b.write("gone", "base\n")
		b.new("s")
		b.write("text", "real\n")
		b.write("gone", "real\n")
		b.in("s", "echo mine > text.new; mv text.new text; rm gone")
		plan, err := b.Reconcile.PlanOf(t.Context(), "s", reconcile.PlanOptions{})
		if err != nil || len(plan.Steps) != 2 || len(plan.Conflicts) > 0 {
			t.Errorf("%+v, %v", plan, err)
		}
		b.write("text", "later\n")
		b.in("s", "echo mine again > text")
		plan, err = b.Reconcile.PlanOf(t.Context(), "s", reconcile.PlanOptions{Only: []string{"text"}})
		if err != nil || len(plan.Steps) > 0 || len(plan.Conflicts) != 1 || plan.Conflicts[0].Kind != "content" {
			t.Errorf("what was recorded once stays: %+v, %v", plan, err)
		}
	})
}

// tooLargeToRead notes that the workspace has more files than a manifest holds, so that it is not read.
func (b *bench) tooLargeToRead() {
	sum := sha256.Sum256([]byte(b.workspace))
	dir := filepath.Join(b.state, "manifests", hex.EncodeToString(sum[:16]))
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		note := fmt.Sprintf("snapfs manifest 1\n%s\nsnapfs kept 2\nend\n", time.Now().UTC().Format(time.RFC3339Nano))
		err = os.WriteFile(filepath.Join(dir, "manifest"), []byte(note), 0o600)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// What a person changes while the command that changes it, too, is running may be
// before or after, and the original is gone: the workspace is too large to be read.
func TestWhatIsChangedWhileTheCommandRunsIsAnHonestConflict(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.write("text", "base\n")
		b.tooLargeToRead()
		b.new("s")
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		p, err := b.Supervise.Exec(t.Context(), "s", isolate.Command{
			Args: []string{"/bin/sh", "-c", "echo mine > text; echo done; sleep 1000"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: b.workspace, Stdout: w,
		})
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if _, err := io.ReadFull(r, make([]byte, len("done"))); err != nil {
			t.Fatal(err)
		}
		b.write("text", "real\n")
		if err := b.Supervise.Stop(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		plan, err := b.Reconcile.PlanOf(t.Context(), "s", reconcile.PlanOptions{})
		const why = "changed on both sides, and the original is no longer available"
		if err != nil || len(plan.Steps) > 0 || len(plan.Conflicts) != 1 || plan.Conflicts[0].Kind != "no-base" || plan.Conflicts[0].Why != why {
			t.Fatalf("%+v, %v", plan, err)
		}
		if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{Tool: "cat $BASE $MINE $REAL > $OUT"}); err != nil {
			t.Fatal(err)
		}
		if got := b.read("text"); got != "mine\nreal\n" {
			t.Errorf("answered by a tool: %q", got)
		}
	})
}

// What the workspace held is read in the background of a command, for what changes while
// it runs.
func TestWhatChangesWhileALongCommandRunsIsMerged(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.write("replaced", "one\n2\n3\n4\nfive\n")
		b.write("written", "one\n2\n3\n4\nfive\n")
		b.new("s")
		in, tell, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer tell.Close()
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		p, err := b.Supervise.Exec(t.Context(), "s", isolate.Command{
			Args: []string{"/bin/sh", "-ec", "read x; sed -i s/one/mine/ replaced; t=$(sed s/one/mine/ written); echo \"$t\" > written; echo new > new; echo done; read x || true"},
			Env:  []string{"PATH=/usr/bin:/bin"}, Dir: b.workspace, Stdin: in, Stdout: w,
		})
		w.Close()
		in.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		b.soon("the manifest is written", func() bool {
			found, _ := filepath.Glob(filepath.Join(b.state, "manifests/*/manifest"))
			return len(found) == 1
		})
		if _, err := tell.WriteString("\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r, make([]byte, len("done"))); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"replaced", "written"} {
			b.write(name, "one\n2\n3\n4\ntheirs\n")
		}
		b.write("beside", "theirs\n")
		tell.Close()
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"replaced", "written"} {
			if got := b.read(name); got != "mine\n2\n3\n4\ntheirs\n" {
				t.Errorf("%s is %q", name, got)
			}
		}
		if err := b.Remove(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		manifests := func() []string {
			if _, err := b.Collect(t.Context()); err != nil {
				t.Fatal(err)
			}
			found, _ := filepath.Glob(filepath.Join(b.state, "manifests/*"))
			return found
		}
		found := manifests()
		if len(found) != 1 {
			t.Fatalf("the next run finds the manifests %v", found)
		}
		if then := time.Now().Add(-2 * time.Hour); os.Chtimes(found[0], then, then) != nil {
			t.Error("the manifest's time cannot be set")
		}
		if found := manifests(); len(found) > 0 {
			t.Errorf("they outlive the sandboxes by hours: %v", found)
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

// On a live base both show nothing at the old path.
func TestADeletionOfWhatTheRealTreeRenamedIsAConflict(t *testing.T) {
	everywhere(t, func(t *testing.T, b *bench) {
		for _, name := range []string{"old", "other"} {
			b.write(name, "text of "+name+"\n")
		}
		b.new("s")
		b.in("s", "rm old other")
		for _, err := range []error{
			os.Rename(filepath.Join(b.workspace, "old"), filepath.Join(b.workspace, "new")),
			os.Remove(filepath.Join(b.workspace, "other")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		plan, err := b.Reconcile.PlanOf(t.Context(), "s", reconcile.PlanOptions{})
		if err != nil || len(plan.Steps) > 0 || len(plan.Conflicts) != 1 || plan.Conflicts[0].Kind != "rename-delete" {
			t.Fatalf("%+v, %v", plan, err)
		}
		if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{Theirs: []string{"new"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
			t.Errorf("after the answer: %v", err)
		}
		if got := b.read("new"); got != "text of old\n" {
			t.Errorf("%q", got)
		}
	})
}
