package plain_test

import (
	"testing"

	"github.com/snapfs/snapfs/backends/plain"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
)

func subject() snapshottest.Subject {
	return snapshottest.Subject{
		Name: "plain", Driver: plain.Driver(), Place: snapshottest.OnDisk, Small: snapshottest.SmallDisk,
	}
}

func TestConformance(t *testing.T) {
	snapshottest.Run(t, subject())
}

func TestConformanceAsUser(t *testing.T) {
	s := subject()
	s.Name = "plain (user)"
	snapshottest.RunAsUser(t, s)
}

func BenchmarkConformance(b *testing.B) {
	snapshottest.Bench(b, subject())
}
