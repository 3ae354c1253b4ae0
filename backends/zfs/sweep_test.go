//go:build linux

package zfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// emptyDataDir returns a backend without ZFS.
func emptyDataDir(t *testing.T) *Backend {
	t.Helper()
	b := &Backend{dir: treetest.Dir(t) + "/state"}
	r, err := b.openOrCreate()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	return b
}

// fakeZFS replaces zfs(8) by a shell script.
func fakeZFS(t *testing.T, script string) {
	t.Helper()
	dir := treetest.Dir(t)
	if err := os.WriteFile(dir+"/zfs", []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// pools imports these pools, each in a state.
func pools(t *testing.T, states map[string]string) {
	t.Helper()
	was := kstats
	kstats = treetest.Dir(t)
	t.Cleanup(func() { kstats = was })
	for pool, state := range states {
		if err := errors.Join(os.Mkdir(kstats+"/"+pool, 0o755), os.WriteFile(kstats+"/"+pool+"/state", []byte(state+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// putInTrash puts an old entry into the trash; with a nil mark it is empty.
func putInTrash(t *testing.T, b *Backend, name string, m *mark, ago time.Duration) {
	t.Helper()
	dir, text := filepath.Join(b.dir, trash, name), ""
	if m != nil {
		text = m.text()
	}
	made := time.Now().Add(-ago)
	if err := errors.Join(os.MkdirAll(dir+"/"+treeName, 0o700), os.WriteFile(dir+"/"+markName, []byte(text), 0o600), os.Chtimes(dir+"/"+markName, made, made)); err != nil {
		t.Fatal(err)
	}
}

func trashed(t *testing.T, b *Backend) (names []string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(b.dir, trash))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func forkIn(pool string) *mark {
	u := unique()
	return &mark{kind: forks, id: "f1", dataset: forkName(pool+"/home", u), unique: u, source: pool + "/home", tree: "/home", within: ".", taken: time.Now()}
}

// The other entries are swept, and every error is reported.
func TestAFailingEntryDoesNotStopASweep(t *testing.T) {
	pools(t, map[string]string{"good": "ONLINE", "hung": "SUSPENDED", "still": "ONLINE", "odd": "ONLINE"})
	odd := forkIn("odd")
	fakeZFS(t, `case "$3" in
still) echo "cannot run: pool is read-only" >&2; exit 1;;
odd) echo '{"return":{"failed":{"`+odd.dataset+`":5},"missing":{},"moved":{}}}';;
*) echo '{"return":{"failed":{},"missing":{},"moved":{}}}';;
esac`)
	b := emptyDataDir(t)
	putInTrash(t, b, "a-unreadable", nil, time.Hour)
	putInTrash(t, b, "b-hung", forkIn("hung"), time.Hour)
	putInTrash(t, b, "c-still", forkIn("still"), time.Hour)
	putInTrash(t, b, "d-odd", odd, time.Hour)
	putInTrash(t, b, "e-away", forkIn("away"), time.Hour)
	putInTrash(t, b, "z-good", forkIn("good"), time.Hour)
	err := b.Sweep(t.Context())
	for _, want := range []string{"a-unreadable", "the pool hung is suspended", "pool is read-only", "zfs cannot destroy it"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	if got, want := trashed(t, b), []string{"later.a-unreadable", "later.b-hung", "later.c-still", "later.d-odd", "later.e-away"}; !slices.Equal(got, want) {
		t.Errorf("the trash has %q, want %q", got, want)
	}
	if b.Pending() {
		t.Error("a postponed entry is pending")
	}
}

// A call of a killed maker may still make the dataset. An entry that its own maker gave up is
// deleted.
func TestAnEntryOfAKilledMakerIsPostponed(t *testing.T) {
	pools(t, map[string]string{"tank": "ONLINE"})
	b := emptyDataDir(t)
	for name, ago := range map[string]time.Duration{"killed": 0, "long-ago": time.Hour, undone + "taken-back": 0} {
		m := forkIn("tank")
		putInTrash(t, b, name, m, ago)
	}
	fakeZFS(t, `shift 4; all=; while [ $# -gt 0 ]; do all="$all${all:+,}\"$1\":true"; shift 3; done
echo "{\"return\":{\"failed\":{},\"missing\":{$all},\"moved\":{}}}"`)
	if err := b.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if got := trashed(t, b); !slices.Equal(got, []string{"later.killed"}) {
		t.Errorf("the trash has %q", got)
	}
}

// The error names the command that helps.
func TestAnEntryOfARenamedDatasetStays(t *testing.T) {
	pools(t, map[string]string{"tank": "ONLINE"})
	b, m := emptyDataDir(t), forkIn("tank")
	putInTrash(t, b, "f1.x", m, time.Hour)
	fakeZFS(t, `echo '{"return":{"failed":{},"missing":{},"moved":{"`+m.dataset+`":true}}}'`)
	err := b.Sweep(t.Context())
	var e *errs.Error
	if !errors.As(err, &e) || !errors.Is(err, errs.ErrNotFound) || !strings.Contains(err.Error(), "captured dataset tank/home does not exist") || len(e.Hints) != 2 {
		t.Errorf("Sweep returns %v", err)
	}
	if got := trashed(t, b); !slices.Equal(got, []string{"later.f1.x"}) {
		t.Errorf("the trash has %q", got)
	}
}

// The writer of the mark was killed before the rename.
func TestAnUnusedReplacementMarkIsDeleted(t *testing.T) {
	b := emptyDataDir(t)
	if err := os.WriteFile(filepath.Join(b.dir, trash, incomplete+"999999999-5-abc"), []byte(forkIn("tank").text()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Sweep(t.Context()); err != nil || b.Pending() || len(trashed(t, b)) > 0 {
		t.Errorf("%v: in the trash are %q", err, trashed(t, b))
	}
}

// zfs(8) reports that the dataset does not exist.
func TestAStateOfAnExportedPoolStays(t *testing.T) {
	pools(t, map[string]string{"tank": "ONLINE"})
	fakeZFS(t, `for a; do case $a in *@*) echo "cannot open '$a': dataset does not exist" >&2;; esac; done; exit 1`)
	away := "away/home@snapfs-abc/work"
	busy, err := States{}.Thaw(t.Context(), []string{"tank/home@snapfs-abd/work", away})
	if err != nil || !slices.Equal(busy, []string{away}) {
		t.Errorf("the busy states are %q, %v", busy, err)
	}
}

// The owner of the parent directory can put a symbolic link there.
func TestASymbolicLinkInPlaceOfTheTreeIsNotFollowed(t *testing.T) {
	b := emptyDataDir(t)
	r, err := b.enter()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	m := forkIn("tank")
	m.within = "ann/work"
	tree := filepath.Join(b.dir, forks, m.id, treeName)
	if err := errors.Join(os.MkdirAll(tree+"/ann/work", 0o755), os.MkdirAll(tree+"/other/work", 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := r.checkPath(*m); err != nil {
		t.Error(err)
	}
	for path, to := range map[string]string{"/ann/work": "/etc", "/ann": "other"} {
		if err := errors.Join(os.RemoveAll(tree+path), os.Symlink(to, tree+path)); err != nil {
			t.Fatal(err)
		}
		if err := r.checkPath(*m); !errors.Is(err, errs.ErrDrifted) {
			t.Errorf("a link at %s: %v", path, err)
		}
		if err := errors.Join(os.RemoveAll(tree+path), os.MkdirAll(tree+"/ann/work", 0o755)); err != nil {
			t.Fatal(err)
		}
	}
}
