//go:build linux

// Package snapshottest checks whether a backend fulfils the contract of package snapshot. A backend
// that passes works with the engine.
//
// # Adding a backend
//
// One test and one benchmark, beside the backend:
//
//	func TestConformance(t *testing.T) {
//		snapshottest.Run(t, subject())
//	}
//
//	func BenchmarkConformance(b *testing.B) {
//		snapshottest.Bench(b, subject())
//	}
//
//	func subject() snapshottest.Subject {
//		return snapshottest.Subject{
//			Name:   "mine (root)",
//			Driver: mine.Driver,
//			Place:  snapshottest.OnDisk,
//			Small:  func(t testing.TB) snapshot.Place { return snapshottest.Within(t, treetest.Ext4(t, 64<<20)) },
//		}
//	}
//
// Call Run first in the test function: the suite starts the test binary again, with that function
// alone, to test several processes and killed ones. Run never returns in such a child process.
//
// A backend makes its steps fail on demand: it calls [fault.Point] with the context of the verb
// before each change on disk. The suite counts the points that a verb passes, then fails each of
// them once, and kills a child process at each of them once. After each failure it reopens the
// backend and examines it. A verb without a fault point fails the suite.
//
// # What is tested
//
// No test depends on the backend's name. The suite checks the claims of a backend (its Facts and
// its optional powers) in both directions: that a frozen base does not change, and that a live one
// does. The table lists a power that the backend does not have as "not offered", and never as
// skipped.
//
// # The table
//
// With SNAPFS_CONFORMANCE_OUT=DIR in the environment each Run writes its results to DIR as JSON,
// and
//
//	go run ./internal/conformance DIR > docs/conformance.md
//
// makes the table in the documents from all of them.
package snapshottest
