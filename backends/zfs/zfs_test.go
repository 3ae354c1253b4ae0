//go:build linux

package zfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/treetest"
)

// What zfs(8) of OpenZFS 2.1 says; conformance_test.go meets it for real.
func TestErrorsOfZFSHaveAKind(t *testing.T) {
	for said, want := range map[string]error{
		"cannot hold snapshot 'tank/home@a': tag already exists on this dataset":                                  errs.ErrExists,
		"cannot destroy snapshot tank/home@a: dataset is busy":                                                    errs.ErrBusy,
		"cannot destroy 'tank/f': filesystem has children\nuse '-r' to destroy the following datasets:\ntank/f@s": errs.ErrBusy,
		"cannot create 'tank/home/.snapfs/x': parent does not exist":                                              errNoParent,
		"cannot create 'tank/home/.snapfs': dataset already exists":                                               errs.ErrExists,
		"cannot open 'tank/home@nope': dataset does not exist\nusage:\n\tsnapshot [-r]":                           errs.ErrNotFound,
		"cannot create 'tank/home/.snapfs/x': out of space":                                                       errs.ErrNoSpace,
		"cannot release hold from snapshot 'tank/home@a': no such tag on this dataset":                            errNoTag,
		"cannot create snapshot 'tank/home@a': permission denied":                                                 errs.ErrDenied,
		"cannot open 'tank/a: out of space': dataset does not exist":                                              errs.ErrNotFound,
		"cannot open 'tank/out of space":                                                                          errs.ErrNotSupported,
		"dataset is busy, they say":                                                                               errs.ErrNotSupported,
		"cannot create 'tank/x': something that nobody has heard of":                                              errs.ErrNotSupported,
	} {
		err := errorOf(&run.Error{Name: "zfs", Stderr: said, Code: 1, Err: errors.New("exit status 1")})
		if !errors.Is(err, want) {
			t.Errorf("the kind of %q is %v, want %v", said, kindOf(err), want)
		}
		if kind := kindOf(err); !errors.Is(want, kind) {
			t.Errorf("%q has the kind %v, which is no sentinel", said, kind)
		}
	}
}

// TestGrantsAreParsed: print_fs_perms of cmd/zfs/zfs_main.c, OpenZFS 2.1.
func TestGrantsAreParsed(t *testing.T) {
	const said = "---- Permissions on tank/a b- ---------------------------------------\n" +
		"Permission sets:\n\t@keep hold,release\n\t@all @keep,destroy\n" +
		"Create time permissions:\n\tcreate\n" +
		"Local permissions:\n\tuser ann snapshot\n\tuser bob clone\n\tgroup staff userprop\n" +
		"Descendent permissions:\n\tuser ann mount\n" +
		"Local+Descendent permissions:\n\teveryone diff\n" +
		"---- Permissions on tank -------------------------------------------------\n" +
		"Local permissions:\n\tuser ann rename\n" +
		"Descendent permissions:\n\tuser ann send\n" +
		"Local+Descendent permissions:\n\tuser ann @all\n"
	ann := func(kind, name string) bool {
		return kind == "everyone" || kind == "user" && name == "ann" || kind == "group" && name == "staff"
	}
	has := granted(said, "tank/a b-", ann)
	for g, want := range map[string]bool{
		"snapshot": true, "userprop": true, "diff": true, "send": true, "hold": true, "release": true, "destroy": true,
		"mount": false, "rename": false, "clone": false, "create": false,
	} {
		if has[g] != want {
			t.Errorf("granted(%s) is %t", g, has[g])
		}
	}
	if has := granted("", "tank", ann); len(has) > 0 {
		t.Errorf("an empty output grants %v", has)
	}
}

func TestAStateNameSurvivesParsing(t *testing.T) {
	want := state{dataset: "tank/a b", unique: unique(), within: "ann/w\nork@/x"}
	got, err := parseState(want.name() + "/" + want.within)
	if err != nil || got != want {
		t.Errorf("%+v is parsed as %+v, %v", want, got, err)
	}
	for _, text := range []string{"", "tank", "tank@snapfs-1", "tank@other/.", "@snapfs-1/.", "tank@snapfs-/.", "tank@snapfs-1/"} {
		if got, err := parseState(text); !errors.Is(err, errs.ErrCorrupt) {
			t.Errorf("%q is parsed as %+v, %v", text, got, err)
		}
	}
}

func TestAMissingProgramIsReportedWithAHint(t *testing.T) {
	err := fail("opening", "", errorOf(&errs.Error{Path: "zfs", Err: run.ErrMissing, Hints: []string{"apt-get install zfsutils-linux"}}))
	var e *errs.Error
	if !errors.As(err, &e) || !errors.Is(err, errs.ErrNotSupported) || len(e.Hints) != 1 {
		t.Errorf("%#v", err)
	}
}

func TestAMarkSurvivesWritingAndReading(t *testing.T) {
	u := unique()
	want := mark{
		kind: forks, id: "f1", dataset: forkName("tank/a b", u), unique: u, source: "tank/a b", tree: "/home/ann/w\nork",
		within: "ann/w\nork", base: "s1", taken: time.Unix(1, 2).UTC(),
	}
	got, err := parseMark(want.text())
	if err != nil || got != want {
		t.Errorf("%+v is parsed as %+v, %v", want, got, err)
	}
}

// TestADamagedMarkIsCorrupt: what it names would be destroyed.
func TestADamagedMarkIsCorrupt(t *testing.T) {
	u := unique()
	whole := mark{kind: forks, id: "f", dataset: forkName("tank", u), unique: u, tree: "/t", within: ".", taken: time.Unix(1, 0)}.text()
	for name, text := range map[string]string{
		"empty":           "",
		"cut":             whole[:len(whole)-1],
		"newer":           strings.Replace(whole, "zfs 1", "zfs 2", 1),
		"another dataset": strings.Replace(whole, "/.snapfs/"+u, "/home", 1),
		"no number":       strings.Replace(whole, "unique "+u, "unique ", 1),
		"no time":         strings.Replace(whole, "taken 19", "taken x", 1),
	} {
		if m, err := parseMark(text); !errors.Is(err, errs.ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

func TestATooLongNameIsRefused(t *testing.T) {
	longest := 0
	for n := 1; n <= nameMax; n++ {
		src := source{dataset: strings.Repeat("d", n)}
		err := checkName(src)
		u := strings.Repeat("z", uniqueMax)
		name := snapshotName(forkName(src.dataset, u), u)
		if (err == nil) != (len(name) <= nameMax) {
			t.Fatalf("a dataset's name of %d bytes returns %v, with %d for a snapshot of its fork", n, err, len(name))
		}
		if err == nil {
			longest = n
		} else if !errors.Is(err, errs.ErrNotSupported) {
			t.Fatal(err)
		}
	}
	if longest < 200 {
		t.Errorf("the longest name of a dataset is %d bytes", longest)
	}
}

func TestThePathInADatasetComesFromItsMount(t *testing.T) {
	for _, c := range []struct{ tree, root, at, within string }{
		{"/tank", "/", "/tank", "."},
		{"/tank/a/b", "/", "/tank", "a/b"},
		{"/home/ann", "/", "/", "home/ann"},
		{"/mnt/b", "/a", "/mnt", "a/b"}, // a bind mount of a part
		{"/mnt", "/a", "/mnt", "a"},
	} {
		src, err := sourceAt(c.tree, mount.Point{Root: c.root, Path: c.at, Source: "tank"})
		if err != nil || src.within != c.within || src.dataset != "tank" {
			t.Errorf("%+v: %+v, %v", c, src, err)
		}
	}
	if _, err := sourceAt("/s", mount.Point{Root: "/", Path: "/s", Source: "tank@s"}); !errors.Is(err, errs.ErrReadOnly) {
		t.Errorf("a tree in a snapshot returns %v", err)
	}
}

func TestATreeOnAnotherFilesystemIsRefused(t *testing.T) {
	dir := treetest.Dir(t)
	place := snapshot.Place{Tree: snapshot.Tree{Path: dir}, Dir: filepath.Join(dir, "state")}
	if _, err := Open(t.Context(), place); !errors.Is(err, errs.ErrNotSupported) {
		t.Error(err)
	}
	if _, err := os.Lstat(place.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("Open left its directory:", err)
	}
	place.Tree.Path += "/gone"
	if _, err := Open(t.Context(), place); !errors.Is(err, errs.ErrNotFound) {
		t.Error(err)
	}
}
