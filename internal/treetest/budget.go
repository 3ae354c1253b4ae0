//go:build linux

package treetest

import (
	"os"
	"testing"
)

// LongEnv is the environment variable with which make check-all gives tests a large budget: every step, more
// seeds and more rounds.
const LongEnv = "SNAPFS_LONG"

// SecondPassEnv is an environment variable that make test sets in its second pass, in which an ordinary user
// runs the tests that root has run before.
const SecondPassEnv = "SNAPFS_SECOND_PASS"

// LaterNote is the beginning of the line that [Long] logs for a test with a reduced budget. The package
// internal/testreport searches the output for it, and so lists the tests that make test-long runs.
const LaterNote = "make test-long plays more of "

// Long reports whether the test has the large budget of make check-all, such as more random seeds. If not, it
// logs [LaterNote]. A run with the race detector (testing.Short) has the small budget too.
func Long(t testing.TB) bool {
	t.Helper()
	if os.Getenv(LongEnv) != "" && !testing.Short() {
		return true
	}
	t.Log(LaterNote + t.Name())
	return false
}

// Budget returns how often a test repeats its work: few in make test, many in make check-all. See [Long].
func Budget(t testing.TB, few, many int) int {
	t.Helper()
	if Long(t) {
		return many
	}
	return few
}

// OncePerRun skips the test in the second pass of make test, as an ordinary user: its result
// does not depend on the user.
func OncePerRun(t testing.TB) {
	t.Helper()
	if secondPass() {
		t.Skip("the same for every user: root has run it")
	}
}

// secondPass reports whether this is the second pass of make test, in which an ordinary user runs the tests
// that root has run before.
func secondPass() bool { return os.Getenv(SecondPassEnv) != "" && os.Geteuid() != 0 }

// OncePerRace skips the test in a race run (testing.Short): root's variant of the same test
// already runs the same goroutines.
func OncePerRace(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("no other goroutines than root's: the race run has those")
	}
}
