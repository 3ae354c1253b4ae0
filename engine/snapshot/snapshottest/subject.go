//go:build linux

package snapshottest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/treetest"
)

// A Subject is a backend for the suite to test, with the functions that set up a test. The backend's own test
// makes it and passes it to [Run] or [Bench].
type Subject struct {
	// Name is the heading of its column in the table: the backend and the user.
	Name string
	// Driver opens the backend. The suite calls it often, and in several processes.
	Driver snapshot.Driver
	// Place makes an empty tree, on a filesystem that the driver accepts, and a place for the data.
	// Each call makes a new one, which is removed when the test ends.
	Place func(t testing.TB) snapshot.Place
	// Small makes a place as Place does, on a filesystem of its own with some ten MiB of
	// space, which the suite fills. It may be called once in a test.
	Small func(t testing.TB) snapshot.Place
	// Ballast occupies the free space of a Small place. nil: the suite uses a file beside the tree,
	// and the filesystem must be able to truncate a file while it is full.
	Ballast func(t testing.TB, place snapshot.Place) Ballast
	// Data lists the directories of the backend's data. nil: place.Dir alone.
	Data func(place snapshot.Place) []string
	// Damage corrupts the data of a fork, as a disk might, so that the last write to the fork is
	// lost. Every [snapshot.Checker] needs it.
	Damage func(t testing.TB, place snapshot.Place, fork snapshot.ForkID)
	// StorageOnly makes Run check only the promises that depend on the filesystem of the
	// backend's data, and write no results, because another subject of the same backend runs
	// the whole suite.
	StorageOnly bool
	// Reach opens the root of a view, writable if the view is. Closing the file unmounts the view.
	// nil: the suite opens a path, mounts an overlay with the product's options, attached nowhere,
	// and serves a served view in this process.
	Reach func(t testing.TB, v snapshot.View) *os.File
}

// OnDisk returns an empty tree and a data directory for a backend, on the disk of /var/tmp. It serves as
// [Subject.Place].
func OnDisk(t testing.TB) snapshot.Place { return Within(t, treetest.Dir(t)) }

// Within returns an empty tree and a data directory for a backend, both in the directory dir.
func Within(t testing.TB, dir string) snapshot.Place {
	t.Helper()
	tree := filepath.Join(dir, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	return snapshot.Place{Tree: snapshot.Tree{Path: tree}, Dir: filepath.Join(dir, "state")}
}

// A promise is one rule of package snapshot that backends must follow, all of them or those that claim it,
// with its test.
type promise struct {
	name string
	test func(*workbench)
	// offered reports whether the backend claims the promise; nil: every backend must follow it.
	offered func(snapshot.Backend) bool
	// storage is set if the promise depends on the filesystem of the backend's data; see
	// [Subject.StorageOnly].
	storage bool
	// small is set if the test fills the disk, and so needs [Subject.Small] in place of [Subject.Place].
	small bool
}

// workbench returns a workbench for the promise's test: the backend with an empty tree, on a small disk if
// the test fills it.
func (p promise) workbench(t testing.TB, s Subject) *workbench {
	t.Helper()
	if p.small {
		return newWorkbench(t, s, s.Small)
	}
	return newWorkbench(t, s, s.Place)
}

// Run checks that the backend s keeps each promise of package snapshot, in a subtest for each. In a child
// process that the suite has started, it executes the child's task and exits instead.
func Run(t *testing.T, s Subject) {
	beChild(s)
	treetest.OncePerRun(t) // root's pass runs the suite as a user too
	results := report{Subject: s.Name}
	if !s.StorageOnly {
		defer results.write(t)
	}
	b := s.open(t, s.Place(t))
	for _, p := range promises() {
		if s.StorageOnly && !p.storage {
			continue
		}
		outcome := none
		if p.offered == nil || p.offered(b) {
			var ran, skip bool
			ok := t.Run(p.name, func(t *testing.T) {
				ran = true
				defer func() { skip = t.Skipped() }()
				x := p.workbench(t, s)
				treetest.Leaks(t, x.data()...)
				p.test(x)
			})
			if !ran { // not selected by -run
				continue
			}
			outcome = outcomeOf(ok, skip) // the clean-up of the test may fail it too
		}
		results.add(p.name, outcome)
	}
}

func promises() []promise {
	var all []promise
	for _, group := range [][]promise{
		basics(), contents(), naming(), removing(), crowds(), faults(), full(), claims(), powers(), limits(),
	} {
		all = append(all, group...)
	}
	return all
}
