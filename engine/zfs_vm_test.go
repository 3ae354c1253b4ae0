//go:build vm

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// These tests need ZFS, and a pool that is theirs: SNAPFS_TEST_ZFS names it.
// `make check-vm WHAT=zfs` has both.

// zfs runs zfs(8), which has to go well, and answers with the words that it says.
func zfs(t testing.TB, args ...string) []string {
	t.Helper()
	out, err := run.Output(context.WithoutCancel(t.Context()), "zfs", args...)
	if err != nil {
		t.Fatal(args, err)
	}
	return strings.Fields(string(out))
}

// onZFS is onPool of the tests' own, in a test that leaves nothing else behind.
func onZFS(t *testing.T) (b *bench, dataset string) {
	t.Helper()
	treetest.Leaks(t)
	return onPool(t, os.Getenv("SNAPFS_TEST_ZFS"))
}

// onPool is a bench whose workspace is a dataset of a pool. What is left beneath that at
// the end but the place for forks is an error.
func onPool(t *testing.T, pool string) (b *bench, dataset string) {
	t.Helper()
	top := treetest.Dir(t)
	dataset = pool + "/" + filepath.Base(top)
	zfs(t, "create", "-o", "mountpoint="+top+"/work", dataset)
	t.Cleanup(func() {
		left := zfs(t, "list", "-H", "-r", "-t", "all", "-o", "name", dataset)
		if len(left) > 2 {
			t.Errorf("left behind: %q", left)
		}
		zfs(t, "destroy", "-f", "-R", dataset)
	})
	b = benchIn(t, top, treetest.Dir(t))
	emptiedLater(t, b, "zfs")
	return b, dataset
}

// emptiedLater removes at the end what a driver holds: the newest base is kept for the next command.
func emptiedLater(t *testing.T, b *bench, name string) {
	t.Cleanup(func() {
		for _, d := range drivers() {
			if d.Name == name {
				emptied(t, b, d)
			}
		}
	})
}

// emptied removes all that a driver holds.
func emptied(t *testing.T, b *bench, d snapshot.Driver) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	backend, err := d.Open(ctx, snapshot.Place{Tree: snapshot.Tree{Path: b.workspace}, Dir: b.DataDir(d.Name)})
	if err != nil {
		t.Fatal(err)
	}
	ids, forks, err := backend.List(ctx)
	for _, id := range forks {
		err = errors.Join(err, backend.RemoveFork(ctx, id))
	}
	for _, id := range ids {
		err = errors.Join(err, backend.Remove(ctx, id))
	}
	if err = errors.Join(err, backend.Sweep(ctx)); err != nil {
		t.Error(err)
	}
}

// TestACommandKilledAtAnyStepOnZFSIsMendedByTheNext kills one at each fifth step, from one
// that differs between runs, and at each where longEnv is set.
func TestACommandKilledAtAnyStepOnZFSIsMendedByTheNext(t *testing.T) {
	b, dataset := onZFS(t)
	b.rehearseAll("kill", 5, "new", "snapshot", "rollback", "remove")
	if got := zfs(t, "list", "-H", "-r", "-o", "name", dataset); len(got) < 3 {
		t.Errorf("the sandbox is no clone of the workspace: %q", got)
	}
}

// TestADatasetDestroyedByHandUnderASandboxOnZFS is told to whoever wants it, harms nobody
// else, and is cleared away with the sandbox.
func TestADatasetDestroyedByHandUnderASandboxOnZFS(t *testing.T) {
	b, dataset := onZFS(t)
	b.write("f", "real")
	b.new("s")
	before := zfs(t, "list", "-H", "-r", "-o", "name", dataset)
	b.new("other")
	fork := before[len(before)-1]
	if !strings.HasPrefix(fork, dataset+"/.snapfs/") {
		t.Fatalf("the sandbox is no clone of the workspace: %q", before)
	}
	b.in("other", "printf other > f")
	if got := b.in("s", "cat f; printf s > f"); got != "real" {
		t.Errorf("f is %q in the sandbox", got)
	}
	if err := b.Supervise.Stop(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	zfs(t, "destroy", "-r", fork)
	b.Engine, _ = b.reopen()
	if _, err := b.Supervise.Exec(t.Context(), "s", b.command("true")); !errors.Is(err, errs.ErrNotFound) || !strings.Contains(err.Error(), "s") {
		t.Errorf("running in it gives %v", err)
	}
	if _, err := b.Fork(t.Context(), "s", "", "k"); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("forking it gives %v", err)
	}
	if infos, err := b.List(t.Context(), true); len(infos) != 2 || err != nil && !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("listed are %v, %v", infos, err)
	}
	if got := b.in("other", "cat f"); got != "other" {
		t.Errorf("f is %q in the other sandbox", got)
	}
	b.new("later")
	if got := b.in("later", "cat f"); got != "real" {
		t.Errorf("f is %q in a sandbox made later", got)
	}
	for _, name := range []string{"s", "other", "later"} {
		if err := b.Remove(t.Context(), name); err != nil {
			t.Errorf("removing %s: %v", name, err)
		}
	}
	b.sound("a dataset destroyed by hand")
	if got := b.read("f"); got != "real" {
		t.Errorf("f of the real tree is %q", got)
	}
}

// TestWhatIsMountedInAWorkspaceOnZFSIsOfTheSameInstant: a dataset in another one is frozen with it, and of
// two numbers of which the one in it is always written last no sandbox has that alone.
func TestWhatIsMountedInAWorkspaceOnZFSIsOfTheSameInstant(t *testing.T) {
	b, dataset := onZFS(t)
	inner := dataset + "-inner"
	zfs(t, "create", "-o", "mountpoint="+b.workspace+"/inner", inner)
	t.Cleanup(func() {
		for _, d := range drivers() {
			if d.Name == "zfs" {
				emptied(t, b, d)
			}
		}
		zfs(t, "destroy", "-f", "-R", inner)
	})
	enough := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() { counting(t, enough, b.workspace+"/first", b.workspace+"/inner/second") })
	defer func() { close(enough); writing.Wait() }()
	for n := range 8 {
		req := b.request()
		req.Name, req.Frozen = fmt.Sprintf("s%d", n), true
		if _, err := b.New(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		got := strings.Fields(b.in(req.Name, "cat first; echo; cat inner/second"))
		if len(got) != 2 {
			t.Fatalf("the sandbox has %q", got)
		}
		first, err1 := strconv.Atoi(got[0])
		second, err2 := strconv.Atoi(got[1])
		if err1 != nil || err2 != nil || first < second || first > second+1 {
			t.Errorf("it has %d, and in the dataset that is mounted in it %d", first, second)
		}
		if err := b.Remove(t.Context(), req.Name); err != nil {
			t.Error(err)
		}
	}
}

// TestWhatCannotBeOfOneInstantOnZFSIsSaid: one dataset, seen at two places, has two snapshots.
func TestWhatCannotBeOfOneInstantOnZFSIsSaid(t *testing.T) {
	b, _ := onZFS(t)
	again := b.workspace + "/again"
	for _, dir := range []string{again, b.workspace + "/part"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount(b.workspace+"/part", again, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(again, unix.MNT_DETACH) })
	e, said := b.reopen()
	b.Engine = e
	b.new("s")
	if !slices.ContainsFunc(*said, func(s string) bool {
		return strings.Contains(s, "not captured at one instant: ") && strings.Contains(s, again)
	}) {
		t.Errorf("it says %q", *said)
	}
}

// counting writes numbers to all files, one after the other, until it is enough.
func counting(t *testing.T, enough <-chan struct{}, paths ...string) {
	var files []*os.File
	for _, path := range paths {
		f, err := os.Create(path)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		files = append(files, f)
	}
	for n := 1; ; n++ {
		for _, f := range files {
			if _, err := fmt.Fprintf(io.NewOffsetWriter(f, 0), "%08d", n); err != nil {
				t.Error(err)
				return
			}
		}
		select {
		case <-enough:
			return
		default:
		}
	}
}

const delegatedEnv = "SNAPFS_TEST_DELEGATED"

// TestADelegatesTreeIsASandboxesTree: the workspace is a dataset of which root has granted the user
// snapshots, or a directory of it. A snapshot that is mounted beneath .zfs is in the way of neither,
// nor does anybody have to ask for the backend.
func TestADelegatesTreeIsASandboxesTree(t *testing.T) {
	if os.Geteuid() != 0 {
		for name, dir := range map[string]string{"dataset": "", "directory": "/work"} {
			t.Run(name, func(t *testing.T) {
				b := newBench(t)
				b.workspace = os.Getenv(delegatedEnv) + dir
				if err := os.MkdirAll(b.workspace, 0o755); err != nil {
					t.Fatal(err)
				}
				emptiedLater(t, b, "zfs-fusecow")
				servedLife(t, b, "")
				if list, err := os.ReadDir(b.DataDir("zfs-fusecow") + "/forks"); err != nil || len(list) != 2 {
					t.Errorf("zfs-fusecow has the forks %v, %v; want those of two sandboxes", list, err)
				}
			})
		}
		return
	}
	user := treetest.User(t)
	dataset := os.Getenv("SNAPFS_TEST_ZFS") + "/" + filepath.Base(filepath.Dir(user.Home))
	tree := user.Home + "/tree"
	zfs(t, "create", "-o", "mountpoint="+tree, dataset)
	t.Cleanup(func() {
		if left := zfs(t, "list", "-H", "-r", "-t", "snapshot", "-o", "name", dataset); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		zfs(t, "destroy", "-f", "-R", dataset)
	})
	zfs(t, "allow", user.Name, "snapshot,userprop,hold,release,destroy,mount", dataset)
	if err := os.Chown(tree, user.UID, user.GID); err != nil {
		t.Fatal(err)
	}
	treetest.RunAs(t, user, t.Name(), treetest.WithEnv(delegatedEnv+"="+tree))
}
