package formats

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// The samples were made by commit 94b6ac0, at this path, which their records name.
const at = "/var/tmp/snapfs-sample"

// mountSample mounts a compressed image of testdata at its path.
func mountSample(t *testing.T, kind string) {
	t.Helper()
	treetest.NeedRoot(t)
	treetest.NeedProgram(t, "zstd")
	if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(at) })
	image := filepath.Join(t.TempDir(), kind)
	if out, err := exec.Command("zstd", "-q", "-d", "--long=27", "testdata/"+kind+".img.zst", "-o", image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	treetest.MountImage(t, kind, image, at)
	t.Setenv("SNAPFS_HOME", at+"/state")
}

// snapfs runs the program in the workspace of the sample.
func snapfs(t *testing.T, args ...string) string {
	t.Helper()
	out, err := try(args...)
	if err != nil {
		t.Fatalf("snapfs %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func try(args ...string) (string, error) {
	c := exec.Command(treetest.Program(), args...)
	c.Dir = at + "/w"
	out, err := c.CombinedOutput()
	return string(out), err
}

func holds(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(at + "/w/" + path); err != nil || string(got) != want {
		t.Errorf("%s: %q, %v; want %q", path, got, err, want)
	}
}

func says(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("no %q in:\n%s", w, got)
		}
	}
}

// removeAll removes every sandbox of the sample, and with them all of their trees.
func removeAll(t *testing.T) {
	t.Helper()
	snapfs(t, "rm", "fix", "other", "third", "again")
	snapfs(t, "gc")
	if got := snapfs(t, "ls", "--json"); strings.Contains(got, `"name"`) {
		t.Errorf("sandboxes are left: %s", got)
	}
}

// A frozen base: sandboxes, named snapshots, a promotion and an apply on btrfs.
func TestStateOnBtrfsIsReadAndUsed(t *testing.T) {
	mountSample(t, "btrfs")
	says(t, snapfs(t, "ls"), "again", "fix", "other", "third", "frozen")
	says(t, snapfs(t, "show", "fix"), "first", "second")
	if got, want := snapfs(t, "diff", "fix"), `A  directory                 d
A  file                +1 B  d/x
M  xattrs                    src/a
D  file                -4 B  src/b
A  file                +5 B  src/c
M  content,time              text
3 added, 2 modified, 1 deleted
`; !strings.HasPrefix(got, want) {
		t.Errorf("the changes of fix:\n%s", got)
	}
	if got := snapfs(t, "exec", "fix", "--", "cat", "text", "src/c"); got != "one\ntwo\nTHREE\nlater" {
		t.Errorf("inside fix: %q", got)
	}
	snapfs(t, "rollback", "fix", "first")
	if got := snapfs(t, "exec", "fix", "--", "cat", "src/c"); got != "new" {
		t.Errorf("at first: %q", got)
	}
	snapfs(t, "rollback", "fix", "second")
	says(t, snapfs(t, "log"), "apply-", "other", "third")
	snapfs(t, "undo") // the apply of third
	if _, err := os.Lstat(at + "/w/t"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("t is there after the undo: %v", err)
	}
	holds(t, "o", "other")
	says(t, snapfs(t, "promote", "fix"), "promoted")
	holds(t, "text", "ONE\ntwo\nTHREE\n")
	holds(t, "src/c", "later")
	snapfs(t, "undo")
	holds(t, "text", "ONE\ntwo\nthree\n")
	snapfs(t, "fork", "again", "more")
	snapfs(t, "rm", "more")
	removeAll(t)
	entries, err := filepath.Glob(at + "/.snapfs/*/forks/*")
	if err != nil || len(entries) != 0 {
		t.Errorf("forks are left: %q, %v", entries, err)
	}
}

// A live base: baselines, a refresh with a conflict and a merged promotion on ext4.
func TestStateOnExt4IsReadAndUsed(t *testing.T) {
	mountSample(t, "ext4")
	says(t, snapfs(t, "ls"), "again", "fix", "other", "third", "live")
	says(t, snapfs(t, "log"), "apply-", "fix", "other", "third")
	if got := snapfs(t, "exec", "again", "--", "cat", "src/c", "d/x"); got != "newx" {
		t.Errorf("inside again: %q", got)
	}
	says(t, snapfs(t, "exec", "again", "--", "cat", "text"), "ONE", "THREE")
	snapfs(t, "rollback", "fix", "first")
	if got := snapfs(t, "exec", "fix", "--", "cat", "src/c"); got != "new" {
		t.Errorf("at first: %q", got)
	}
	holds(t, "text", "ONE\ntwo\nTHREE\n")
	snapfs(t, "undo") // the promotion of fix
	holds(t, "text", "ONE\ntwo\nthree\n")
	holds(t, "src/b", "gone")
	snapfs(t, "undo") // the apply of third
	if _, err := os.Lstat(at + "/w/t"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("t is there after the undo: %v", err)
	}
	snapfs(t, "exec", "other", "--", "sh", "-c", "printf more > p")
	says(t, snapfs(t, "promote", "other"), "promoted")
	holds(t, "p", "more")
	removeAll(t)
}
