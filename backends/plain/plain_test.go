package plain_test

import (
	"os"
	"testing"

	"github.com/snapfs/snapfs/backends/plain"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/treetest"
)

func subject() snapshottest.Subject {
	return snapshottest.Subject{
		Name: "plain", Driver: plain.Driver, Place: snapshottest.OnDisk, Small: smallDisk,
	}
}

func TestConformance(t *testing.T) {
	snapshottest.Run(t, subject())
}

// TestConformanceAsUser runs in make test-long alone. In make test other tests show what an ordinary user may not
// read or copy, and the rest of the backend is the same for every user.
func TestConformanceAsUser(t *testing.T) {
	if !treetest.Long(t) {
		return
	}
	s := subject()
	s.Name = "plain (user)"
	runAsUser(t, s)
}

const smallEnv = "SNAPFS_SNAPSHOTTEST_SMALL"

// smallDisk is a [snapshottest.Subject.Small] on an ext4 of 32 MiB. An ordinary user cannot mount one, and uses
// the one that runAsUser has mounted.
func smallDisk(t testing.TB) snapshot.Place {
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
		return snapshottest.Within(t, own)
	}
	return snapshottest.Within(t, treetest.Ext4(t, 32<<20))
}

// runAsUser runs the suite as an ordinary user, whom it creates if the caller is root.
func runAsUser(t *testing.T, s snapshottest.Subject) {
	t.Helper()
	treetest.OncePerRace(t)
	if os.Geteuid() != 0 {
		treetest.OncePerRun(t)
		snapshottest.Run(t, s)
		return
	}
	user := treetest.User(t)
	small := treetest.Ext4(t, 32<<20)
	if err := os.Chown(small, user.UID, user.GID); err != nil {
		t.Fatal(err)
	}
	treetest.RunAs(t, user, t.Name(), treetest.WithEnv(smallEnv+"="+small))
}
