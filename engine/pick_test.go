package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/workflow/pick"
)

// onEachBackend runs a test as root and as a user on backends with a live base, and as root on those with a frozen one.
func onEachBackend(t *testing.T, test func(t *testing.T, b *bench, backend string)) {
	for _, backend := range []string{"overlay", "fusecow"} {
		t.Run(backend+", root", func(t *testing.T) {
			treetest.NeedRoot(t)
			test(t, newBench(t), backend)
		})
		t.Run(backend+", user", func(t *testing.T) {
			if os.Geteuid() == 0 {
				treetest.RunAs(t, treetest.User(t), t.Name(), treetest.WithFUSE())
				return
			}
			treetest.OncePerRun(t)
			if backend == "fusecow" {
				treetest.NeedDevice(t, "/dev/fuse")
			}
			test(t, newBench(t), backend)
		})
	}
	t.Run("plain", func(t *testing.T) {
		treetest.NeedRoot(t)
		work := treetest.Small(t, "ext4", 64<<20) // all of it is copied
		if err := os.RemoveAll(filepath.Join(work, "lost+found")); err != nil {
			t.Fatal(err)
		}
		test(t, benchIn(t, work, treetest.Dir(t)), "plain")
	})
	onBtrfs(t, func(t *testing.T, b *bench) { test(t, b, "") })
}

// answers returns an asker that answers in turn, and a list of what it was asked.
func (b *bench) answers(list ...pick.Answer) (pick.Asker, *[]string) {
	var asked []string
	return func(q pick.Question) (pick.Answer, error) {
		if len(asked) == len(list) {
			return pick.Leave, errors.New("too many questions")
		}
		text, _ := filepath.Rel(b.workspace, q.Path)
		if q.Move != nil {
			text = q.Move.From + ">" + text
		}
		if q.Hunk != nil {
			var hunk strings.Builder
			if err := q.Hunk(&hunk); err != nil {
				return pick.Leave, err
			}
			for line := range strings.Lines(hunk.String()) {
				if line[0] == '+' {
					text += " " + strings.TrimSpace(line)
				}
			}
		}
		asked = append(asked, text)
		return list[len(asked)-1], nil
	}, &asked
}

// Hunks and files that a person picks reach the real tree, and all others stay changes of the sandbox.
// Cost: a second for each backend.
func TestPickedHunksArePromoted(t *testing.T) {
	onEachBackend(t, pickedHunksArePromoted)
}

func pickedHunksArePromoted(t *testing.T, b *bench, backend string) {
	was := lines(20, nil)
	for _, name := range []string{"text", "whole", "other", "gone", "mode"} {
		b.write(name, was)
	}
	b.write("old-name", strings.Repeat("moved\n", 40))
	b.write("binary", "a\x00b")
	tick()
	req := b.request()
	req.Name, req.Backend = "s", backend
	if _, err := b.New(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	b.in("s", "sed -i 's/line b/B/; s/line e/E/; s/line r/R/' text; sed -i 's/line c/C/' whole other; rm gone; chmod 755 mode; "+
		"mv old-name new-name; printf 'a\\0c' >binary; ln -s text link; mkdir -p d/e; echo 1 >d/e/a; echo 2 >d/e/b; echo new >'n*w'; echo other >now")
	if err := b.Supervise.Stop(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	tick()

	ask, asked := b.answers(pick.Take, pick.Leave, pick.Take, pick.Leave, pick.Take, pick.Leave, pick.Leave, pick.Take,
		pick.Leave, pick.Leave, pick.Split, pick.Take, pick.Leave, pick.Take, pick.Take)
	done, err := pick.Promote(t.Context(), b.Engine, "s", reconcile.PromoteOptions{}, ask)
	want := []string{
		"binary", "d/e/a", "d/e/b", "gone", "link", "mode", "n*w", "old-name>new-name", "now", "other +C",
		"text +B +E", "text +B", "text +E", "text +R", "whole +C",
	}
	if err != nil || !slices.Equal(*asked, want) {
		t.Fatalf("asked %q, want %q: %v", *asked, want, err)
	}
	b.holds(map[string]string{
		"binary": "a\x00c", "d/e/b": "2\n", "gone": was, "new-name": strings.Repeat("moved\n", 40), "other": was,
		"text": strings.NewReplacer("line b", "B", "line r", "R").Replace(was), "whole": strings.ReplaceAll(was, "line c", "C"),
	}, "d/e/a", "old-name", "n*w", "now")
	if info, err := os.Stat(filepath.Join(b.workspace, "mode")); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("a mode that was not picked: %v, %v", info, err)
	}
	if all, err := b.Names(); err != nil || !slices.Equal(all, []string{"s"}) {
		t.Errorf("sandboxes: %q, %v", all, err)
	}

	// The rest is asked about again, and nothing else.
	all := make([]pick.Answer, 20)
	ask, asked = b.answers(all...)
	rest, err := pick.Promote(t.Context(), b.Engine, "s", reconcile.PromoteOptions{}, ask)
	want = []string{"d/e/a", "gone", "mode", "n*w", "now", "other +C", "text +E"}
	if backend == "plain" { // each fork is a copy, and the bytes of a binary file are not recorded: it is asked about again
		want = slices.Insert(want, 0, "binary")
	}
	if err != nil || rest.Picked || !slices.Equal(*asked, want) {
		t.Errorf("the rest: asked %q, want %q: %v", *asked, want, err)
	}

	// Undone, all of it is a change again.
	if _, err := b.Reconcile.Undo(t.Context(), done.ID); err != nil {
		t.Fatal(err)
	}
	b.holds(map[string]string{"text": was, "whole": was, "binary": "a\x00b", "old-name": strings.Repeat("moved\n", 40)}, "d", "new-name", "link")
	if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.holds(map[string]string{
		"text": strings.NewReplacer("line b", "B", "line e", "E", "line r", "R").Replace(was), "n*w": "new\n", "now": "other\n", "d/e/a": "1\n",
	}, "gone", "old-name")
}

// holds checks the content of real files, and that others do not exist.
func (b *bench) holds(want map[string]string, absent ...string) {
	b.t.Helper()
	for name, content := range want {
		if got := b.read(name); got != content {
			b.t.Errorf("%s: %q, want %q", name, got, content)
		}
	}
	for _, name := range absent {
		if _, err := os.Lstat(filepath.Join(b.workspace, name)); !errors.Is(err, os.ErrNotExist) {
			b.t.Errorf("%s: %v", name, err)
		}
	}
}

// The real tree's own changes of a text stay, are no question, and conflict only with what was picked. An error, and
// a person who leaves, change nothing.
func TestPickingMergesWithTheRealTree(t *testing.T) {
	everywhere(t, func(t *testing.T, b *bench) {
		was := lines(20, nil)
		b.write("text", was)
		tick()
		b.new("s")
		b.in("s", "sed -i 's/line b/B/; s/line l/L/' text")
		if err := b.Supervise.Stop(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		b.changed("s", "", "") // its originals are recorded
		tick()
		real := strings.NewReplacer("line l", "other", "line t", "T").Replace(was)
		b.write("text", real)
		tick()
		for _, answer := range []pick.Answer{pick.Quit, pick.Leave, pick.LeaveRest} {
			ask, _ := b.answers(answer, pick.Leave)
			if done, err := pick.Promote(t.Context(), b.Engine, "s", reconcile.PromoteOptions{}, ask); err != nil || done.Picked {
				t.Errorf("answer %d: %+v, %v", answer, done, err)
			}
		}
		ask, _ := b.answers(pick.Take)
		if _, err := pick.Promote(t.Context(), b.Engine, "s", reconcile.PromoteOptions{}, ask); err == nil {
			t.Error("the person was gone at the second question, and it was promoted")
		}
		ask, _ = b.answers(pick.Take, pick.Take)
		if _, err := pick.Promote(t.Context(), b.Engine, "s", reconcile.PromoteOptions{}, ask); !errors.Is(err, errs.ErrConflict) {
			t.Errorf("both sides have changed what was picked: %v", err)
		}
		b.holds(map[string]string{"text": real})
		ask, asked := b.answers(pick.Take, pick.LeaveRest)
		if _, err := pick.Promote(t.Context(), b.Engine, "s", reconcile.PromoteOptions{}, ask); err != nil {
			t.Fatal(err)
		}
		if want := []string{"text +B", "text +L"}; !slices.Equal(*asked, want) {
			t.Errorf("asked %q, want %q", *asked, want)
		}
		b.holds(map[string]string{"text": strings.ReplaceAll(real, "line b", "B")})
		if all, err := b.Names(); err != nil || !slices.Equal(all, []string{"s"}) {
			t.Errorf("sandboxes: %q, %v", all, err)
		}
	})
}
