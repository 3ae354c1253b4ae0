//go:build linux

package treetest

import (
	"os"
	"testing"
)

// LongEnv is the variable that gives tests the budget of make check-all: every step,
// more seeds and more rounds.
const LongEnv = "SNAPFS_LONG"

// SecondPassEnv is set in the second pass of make test, in which an ordinary user runs the
// tests that root has run before.
const SecondPassEnv = "SNAPFS_SECOND_PASS"

// LaterNote begins the line by which [Long] notes a test. internal/testreport counts the
// tests that have it and lists them for make test-long.
const LaterNote = "make test-long plays more of "

// Long reports whether the test has the budget of make check-all. Where it has the one of
// make test, Long notes the test for make test-long. A race run (testing.Short) has the
// small budget too.
func Long(t testing.TB) bool {
	t.Helper()
	if os.Getenv(LongEnv) != "" && !testing.Short() {
		return true
	}
	t.Log(LaterNote + t.Name())
	return false
}

// Budget returns few in make test and many in make check-all. See [Long].
func Budget(t testing.TB, few, many int) int {
	t.Helper()
	if Long(t) {
		return many
	}
	return few
}

// OnlyLong skips the test in make test; make check-all runs it. It is for what a smaller
// budget of another test covers.
func OnlyLong(t testing.TB) {
	t.Helper()
	if !Long(t) {
		t.SkipNow()
	}
}

// OncePerRun skips the test in the second pass of make test, as its result does not depend on
// the user.
func OncePerRun(t testing.TB) {
	t.Helper()
	if SecondPass() {
		t.Skip("the same for every user: root has run it")
	}
}

// SecondPass reports whether root has run the tests before; see [OncePerRun].
func SecondPass() bool { return os.Getenv(SecondPassEnv) != "" && os.Geteuid() != 0 }

// OncePerRace skips the test in a race run (testing.Short): an ordinary user runs the same
// goroutines as root, whose test the run has.
func OncePerRace(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("no other goroutines than root's: the race run has those")
	}
}
