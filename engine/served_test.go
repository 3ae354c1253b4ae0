package engine_test

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate"
)

// A tree that a process serves, as a whole or beneath the kernel's overlay, is taken
// through a sandbox's life: changed, looked at and kept while it runs, forked, rolled back
// and brought to the real tree.
func TestATreeThatIsServedIsASandboxesTree(t *testing.T) {
	treetest.NeedDevice(t, "/dev/fuse")
	t.Run("root", func(t *testing.T) {
		treetest.NeedRoot(t)
		servedLife(t, newBench(t), "fusecow")
	})
	t.Run("root, beneath an overlay", func(t *testing.T) {
		treetest.NeedRoot(t)
		servedLife(t, newBench(t), "fusecow-overlay")
	})
	if !later(t) {
		return
	}
	t.Run("user", func(t *testing.T) {
		if os.Geteuid() == 0 {
			treetest.RunAs(t, treetest.User(t), t.Name(), treetest.WithFUSE())
			return
		}
		servedLife(t, newBench(t), "fusecow")
	})
	t.Run("user, beneath an overlay", func(t *testing.T) {
		if os.Geteuid() == 0 {
			treetest.RunAs(t, treetest.User(t), t.Name(), treetest.WithFUSE())
			return
		}
		servedLife(t, newBench(t), "fusecow-overlay")
	})
}

func servedLife(t *testing.T, b *bench, backend string) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	b.write("edited", "base\n")
	b.write("gone", "base\n")
	must(os.Mkdir(b.workspace+"/dir", 0o755))
	b.write("dir/kept", "base\n")
	tick()
	req := b.request()
	req.Name, req.Backend = "s", backend
	_, err := b.New(t.Context(), req)
	must(err)
	b.removeLater("s")
	b.in("s", "echo mine >> edited; rm gone; mv dir moved; ln edited linked; id -u")
	writer, err := b.Supervise.Exec(t.Context(), "s", isolate.Command{
		Args: []string{"/bin/sh", "-c", "exec 3> log; while echo line >&3; do :; done"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: b.workspace,
	})
	must(err)
	want := []string{"A linked", "A log", "A moved", "A moved/kept", "D dir", "D dir/kept", "D gone", "M edited"}
	check := func(when, name, from, to string, want []string) {
		t.Helper()
		got := b.changed(name, from, to)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	b.in("s", "until [ -s log ]; do :; done")
	_, err = b.Snapshot(t.Context(), "s", "running") // while it is written to
	must(err)
	b.in("s", "echo more > later; rm linked")
	_, err = b.Fork(t.Context(), "s", "running", "f")
	must(err)
	b.removeLater("f")
	check("the state kept while it ran", "f", "", "", want)
	must(writer.Close())
	check("since", "s", "running", "", []string{"A later", "D linked", "M edited", "M log"})
	must(b.Supervise.Stop(t.Context(), "s"))
	must(b.Rollback(t.Context(), "s", "running"))
	check("rolled back", "s", "", "", want)
	_, err = b.Reconcile.Promote(t.Context(), "f", strictly())
	must(err)
	if text, err := os.ReadFile(b.workspace + "/linked"); string(text) != "base\nmine\n" {
		t.Errorf("brought to the real tree: %q, %v", text, err)
	}
}

// TestALargeFileWhoseBaseWasWrittenToHasDrifted: what was not copied of it cannot be had
// any more, and nothing else is held up by that.
func TestALargeFileWhoseBaseWasWrittenToHasDrifted(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	b := newBench(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(b.workspace+"/large", bytes.Repeat([]byte("base"), 17<<20), 0o600))
	b.write("small", "base\n")
	tick()
	req := b.request()
	req.Name, req.Backend = "s", "fusecow"
	_, err := b.New(t.Context(), req)
	must(err)
	b.removeLater("s")
	b.in("s", "echo mine > small; printf mine | dd of=large bs=1 seek=1000000 conv=notrunc 2>/dev/null")
	large, err := os.OpenFile(b.workspace+"/large", os.O_WRONLY, 0)
	must(err)
	_, err = large.WriteAt([]byte("their"), 60<<20)
	must(errors.Join(err, large.Close()))
	if got, want := b.changed("s", "", ""), []string{"M large", "M small"}; !slices.Equal(got, want) {
		t.Errorf("changed: %q, want %q", got, want)
	}
	if _, err := b.Reconcile.Promote(t.Context(), "s", strictly()); !errors.Is(err, errs.ErrDrifted) {
		t.Errorf("applied with no answer: %v, want that it has drifted", err)
	}
	_, err = b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{Mine: []string{"large"}})
	if !errors.Is(err, errs.ErrDrifted) || !strings.Contains(err.Error(), "which had the rest") {
		t.Errorf("promoted as the sandbox has it: %v, want what it stood on", err)
	}
	_, err = b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{Theirs: []string{"large"}})
	must(err)
	if text, err := os.ReadFile(b.workspace + "/small"); string(text) != "mine\n" {
		t.Errorf("small is %q, %v", text, err)
	}
}
