//go:build linux

// Package snapshottest says whether a backend keeps the contract of package
// snapshot. Who passes it works with the engine.
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
//			Driver: mine.Driver(),
//			Place:  snapshottest.OnDisk,
//			Small:  func(t testing.TB) snapshot.Place { return snapshottest.Within(t, treetest.Ext4(t, 64<<20)) },
//		}
//	}
//
// Call Run first thing in the test function: the suite starts the test binary
// again, with that function alone, to see what other processes and killed ones
// do. Such a child never returns from Run.
//
// A backend's steps fail on demand where it calls [fault.Point] with the
// context of the verb, before each change it makes on disk. The suite counts
// the points a verb passes, then fails each of them once, and kills a child at
// each of them once; after that the backend is opened again and examined. A
// verb that passes no point fails the suite.
//
// # What is tested
//
// Nothing depends on the backend's name. What a backend claims (its Facts, the
// optional interfaces it has) is checked in both directions: that a frozen base
// does not change, and that one said to be live does. What it does not offer is
// written down as such, never skipped.
//
// # The table
//
// With SNAPFS_CONFORMANCE_OUT=DIR in the environment each Run writes its
// results to DIR as JSON, and
//
//	go run ./internal/conformance DIR > docs/conformance.md
//
// makes the table of the documents from all of them.
package snapshottest
