//go:build linux

package fusecow_test

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/treetest"
)

// The filesystems that may hold trees and layers differ much: ext4 copies, btrfs shares blocks and never writes
// in place, tmpfs has no disk and not always birth times. The whole suite runs on ext4, and the parts that
// depend on the filesystem on the others, on tmpfs in make test-long alone; make grounds runs all on each.

const (
	wholeEnv  = "SNAPFS_WHOLE_GROUNDS"
	groundEnv = "SNAPFS_TEST_GROUND" // a filesystem for the directories of an ordinary user
	smallEnv  = "SNAPFS_TEST_GROUND_SMALL"
)

func TestConformance(t *testing.T)        { byRoot(t, subject("fusecow (root)"), "ext4") }
func TestConformanceOnBtrfs(t *testing.T) { byRoot(t, part("fusecow (root, on btrfs)"), "btrfs") }

func TestConformanceOnTmpfs(t *testing.T) {
	if os.Getenv(wholeEnv) == "" && !treetest.Long(t) {
		return
	}
	byRoot(t, part("fusecow (root, on tmpfs)"), "tmpfs")
}

func subject(name string) snapshottest.Subject {
	return snapshottest.Subject{Name: name, Driver: driver(), Damage: damage}
}

// damage damages the log of a fork's layer at the record of a certain file.
func damage(t testing.TB, place snapshot.Place, fork snapshot.ForkID) {
	t.Helper()
	logs, err := filepath.Glob(place.Dir + "/layers/" + string(fork) + "-*/log")
	if err != nil || len(logs) != 1 {
		t.Fatalf("the logs of %s are %q: %v", fork, logs, err)
	}
	log, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(log, []byte("lost"))
	if at < 0 {
		t.Fatal("the log tells nothing of what is to be lost")
	}
	log[at] ^= 0x55
	if err := os.WriteFile(logs[0], log, 0o600); err != nil {
		t.Fatal(err)
	}
}

func part(name string) snapshottest.Subject {
	s := subject(name)
	s.StorageOnly = os.Getenv(wholeEnv) == ""
	return s
}

func byRoot(t *testing.T, s snapshottest.Subject, fs string) {
	if testing.Short() && fs != "ext4" { // a race-detector run needs only one filesystem
		return
	}
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	own := sync.OnceValue(func() string { return ground(t, fs) }) // not in a child process, which gets its place and is killed
	s.Place = func(one testing.TB) snapshot.Place { return within(own())(one) }
	s.Small = func(t testing.TB) snapshot.Place { return snapshottest.Within(t, small(t, fs)) }
	snapshottest.Run(t, s)
}

// ground returns a fresh filesystem; with small, one of some ten MiB.
func ground(t testing.TB, fs string) string { return treetest.Small(t, fs, 2<<30) }

func small(t testing.TB, fs string) string {
	if fs != "btrfs" {
		return treetest.Small(t, fs, 32<<20)
	}
	// A small btrfs has data and metadata in one space, and cannot even truncate a file when it is full.
	top := treetest.Small(t, fs, 300<<20)
	treetest.Crowd(t, top)
	return top
}

// within returns places in a directory.
func within(dir string) func(testing.TB) snapshot.Place {
	return func(t testing.TB) snapshot.Place {
		t.Helper()
		own, err := os.MkdirTemp(dir, "place")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(own); err != nil {
				t.Error(err)
			}
		})
		return snapshottest.Within(t, own)
	}
}
