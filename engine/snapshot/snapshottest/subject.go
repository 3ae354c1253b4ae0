//go:build linux

package snapshottest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/treetest"
)

// A Subject is a backend under test, and the circumstances it is tested in.
type Subject struct {
	// Name heads its column in the table: the backend, and as whom it ran.
	Name string
	// Driver opens the backend, as often as the suite likes, in any process.
	Driver snapshot.Driver
	// Place makes an empty tree, on a filesystem of the kind that the driver
	// holds, and a place for the data. Each call makes another one; it goes
	// when the test ends.
	Place func(t testing.TB) snapshot.Place
	// Small is Place on a filesystem of its own with some ten MiB of room,
	// which the suite fills up. It may be called once a test.
	Small func(t testing.TB) snapshot.Place
	// Ballast takes up the room of a Small place. When nil, a file beside the tree does,
	// which a filesystem has to let be cut short while it is full.
	Ballast func(t testing.TB, place snapshot.Place) Ballast
	// Data lists the directories that the backend's data lies in. When nil,
	// that is place.Dir alone.
	Data func(place snapshot.Place) []string
	// Damage does to what a [snapshot.Checker] keeps of a fork what a disk may do, so that
	// what was written to the fork last is lost.
	Damage func(t testing.TB, place snapshot.Place, fork snapshot.ForkID)
	// Ground: only what depends on the filesystem that the data lies on is played, and
	// leaves no results for the table: the whole suite is played on another one.
	Ground bool
	// Reach opens the root of a view, to be written where the view can be.
	// When nil, a path is opened, an overlay is mounted on nothing, with the
	// features that the product mounts it with, and what is served is served by
	// this process. Closing the file takes the mount away.
	Reach func(t testing.TB, v snapshot.View) *os.File
}

// OnDisk is a [Subject.Place] on the disk that holds /var/tmp.
func OnDisk(t testing.TB) snapshot.Place { return Within(t, treetest.Dir(t)) }

// Within is a place whose tree and data both lie in the directory dir.
func Within(t testing.TB, dir string) snapshot.Place {
	t.Helper()
	tree := filepath.Join(dir, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	return snapshot.Place{Tree: snapshot.Tree{Path: tree}, Dir: filepath.Join(dir, "state")}
}

const smallEnv = "SNAPFS_SNAPSHOTTEST_SMALL"

// SmallDisk is a [Subject.Small] on an ext4 of 32 MiB. An ordinary user, who
// cannot mount one, has it from RunAsUser.
func SmallDisk(t testing.TB) snapshot.Place {
	t.Helper()
	if dir := os.Getenv(smallEnv); dir != "" {
		own, err := os.MkdirTemp(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(own); err != nil {
				t.Error(err)
			}
		})
		return Within(t, own)
	}
	return Within(t, treetest.Ext4(t, smallSize))
}

const smallSize = 32 << 20

// RunAsUser is Run by an ordinary user, whom it makes when root calls it.
func RunAsUser(t *testing.T, s Subject) {
	t.Helper()
	beChild(s)
	if os.Geteuid() != 0 {
		treetest.OncePerRun(t)
		Run(t, s)
		return
	}
	user := treetest.User(t)
	small := treetest.Ext4(t, smallSize)
	if err := os.Chown(small, user.UID, user.GID); err != nil {
		t.Fatal(err)
	}
	treetest.RunAs(t, user, t.Name(), treetest.WithEnv(smallEnv+"="+small))
}

// A promise is one thing that every backend keeps.
type promise struct {
	name string
	test func(*workbench)
	// offered says whether the backend claims it at all; nil: it must.
	offered func(snapshot.Backend) bool
	// ground: it depends on the filesystem that the data lies on; see [Subject.Ground].
	ground bool
}

// Run checks each promise in a test of its own. In a child process that the
// suite itself has started, it does the child's work and exits.
func Run(t *testing.T, s Subject) {
	beChild(s)
	results := report{Subject: s.Name}
	if !s.Ground {
		defer results.write(t)
	}
	b := s.open(t, s.Place(t))
	for _, p := range promises() {
		if s.Ground && !p.ground {
			continue
		}
		outcome := none
		if p.offered == nil || p.offered(b) {
			var ran, skip bool
			ok := t.Run(p.name, func(t *testing.T) {
				ran = true
				defer func() { skip = t.Skipped() }()
				x := newWorkbench(t, s, s.Place)
				treetest.Leaks(t, x.data()...)
				p.test(x)
			})
			if !ran { // nobody asked for it, with -run
				continue
			}
			outcome = outcomeOf(ok, skip) // what is found at the end counts too
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
