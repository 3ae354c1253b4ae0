package promote_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// Apply refuses every change that needs approval in one error, and promotes those that are
// approved by path or pattern.
func TestChangesAreAppliedOnceApproved(t *testing.T) {
	w := newWorld(t, treetest.Dir(t),
		treetest.Script{do(treetest.Mkdir, ".git", ""), file(".git/index", 1, 10), file(".git/gone", 1, 10), file("plain", 1, 10)},
		treetest.Script{
			do(treetest.Unlink, ".git/index", ""), file(".git/index", 2, 10), do(treetest.Unlink, ".git/gone", ""),
			do(treetest.Mkdir, ".git/hooks", ""), file(".git/hooks/post-checkout", 3, 10), file(".bashrc", 3, 10),
			do(treetest.Mkdir, "sub", ""), do(treetest.Mkdir, "sub/.vscode", ""), file("sub/.vscode/tasks.json", 4, 10),
			do(treetest.Unlink, "plain", ""), file("plain", 5, 10),
		})
	old := manifest(t, w)
	for _, c := range []struct{ allow, want, hint string }{
		{"", ".bashrc .git/gone .git/hooks .git/index sub/.vscode", ".bashrc .git sub/.vscode"},
		{".git", ".bashrc sub/.vscode", ".bashrc sub/.vscode"},
		{".git/hooks .bash* sub/*", ".git/gone .git/index", ".git"},
		{w.real.Name() + "/.git " + w.real.Name() + "/sub", ".bashrc", ".bashrc"},
		{".git/hooks/post-checkout [ /", "", ""},
		{". nothing/there", "", ""},
	} {
		o := options(w.frozen())
		o.Sandbox, o.Allow.Paths = "s", strings.Fields(c.allow)
		if c.want == "" {
			if h := o.Allow.Check(w.real.Name(), w.changes(t, w.frozen()), nil); h != nil {
				t.Errorf("allowed %q: %v", c.allow, h.Paths)
			}
			continue
		}
		_, err := promote.Apply(t.Context(), w.target(), w.source(), w.changes(t, w.frozen()), o)
		needed := o.Allow.Check(w.real.Name(), w.changes(t, w.frozen()), nil)
		if !errors.Is(err, errs.ErrDenied) || strings.Join(w.listed(err), " ") != c.want || strings.Join(needed.Allow, " ") != c.hint {
			t.Errorf("allowed %q: %v, %q", c.allow, err, needed.Allow)
		}
		if l := treetest.Lines(old, manifest(t, w)); len(l) > 0 {
			t.Fatalf("allowed %q: touched %q", c.allow, l)
		}
	}
	o := options(w.frozen())
	o.Allow.Paths = []string{""}
	if _, err := promote.Apply(t.Context(), w.target(), w.source(), w.changes(t, w.frozen()), o); !errors.Is(err, errs.ErrNotSupported) {
		t.Errorf("an empty path: %v", err)
	}
	o.Allow.Paths = []string{".git", ".bashrc", "sub/.vscode/tasks.json", "sub/.vscode"}
	_, err := promote.Apply(t.Context(), w.target(), w.source(), w.changes(t, w.frozen()), o)
	must(t, err)
	w.arrived(t)
}

// Rules apply to the target's real path, also if the caller names it through a link.
func TestRulesApplyToTheRealPathOfTheTarget(t *testing.T) {
	w := newWorld(t, treetest.Dir(t), nil, treetest.Script{file("x.desktop", 1, 10)})
	autostart := filepath.Join(w.top, ".config", "autostart")
	must(t, os.MkdirAll(autostart, 0o755))
	must(t, os.Symlink(autostart, filepath.Join(w.top, "link")))
	for _, path := range []string{autostart, filepath.Join(w.top, "link")} {
		target := w.target()
		target.Root, target.Path = treetest.Open(t, path), path
		o := options(w.frozen())
		o.Allow.Paths = nil
		_, err := promote.Apply(t.Context(), target, w.source(), w.changes(t, w.frozen()), o)
		if !errors.Is(err, errs.ErrDenied) || !strings.Contains(err.Error(), "x.desktop: ") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
