//go:build linux

package treetest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/run"
)

// Skip skips a test that this machine cannot run: need names the missing thing and why explains. No other
// code may skip, besides SkipUnreachable. With SNAPFS_NO_SKIP=1, as in the project's CI, Skip fails the test
// instead. If SNAPFS_SKIP_LOG names a file, Skip adds a line to it, so that skips are counted.
func Skip(t testing.TB, need, why string) {
	t.Helper()
	logSkip(t, need, why)
	if os.Getenv("SNAPFS_NO_SKIP") == "1" {
		t.Fatalf("needs %s, and SNAPFS_NO_SKIP forbids to skip: %s", need, why)
	}
	t.Skipf("needs %s: %s", need, why)
}

// SkipUnreachable skips a test that needs a package or image from a registry that does not respond. It skips
// even with SNAPFS_NO_SKIP, because no change of the project can make a registry answer. The skip is counted
// like those of Skip.
func SkipUnreachable(t testing.TB, need, why string) {
	t.Helper()
	logSkip(t, need, strings.Join(strings.Fields(why), " "))
	t.Skipf("needs %s: %s", need, why)
}

// logSkip adds a line about a skipped test, with need and why as for [Skip], to the file that SNAPFS_SKIP_LOG
// names, if it is set.
func logSkip(t testing.TB, need, why string) {
	t.Helper()
	if path := os.Getenv("SNAPFS_SKIP_LOG"); path != "" {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Chmod(0o666) // tests as other users add their lines
		fmt.Fprintf(f, "%s: needs %s: %s\n", t.Name(), need, why)
		f.Close()
	}
}

// NeedRoot skips the test unless it runs as root, and counts the skip (see [Skip]).
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Skip(t, "root", "run the tests with sudo to include this one")
	}
}

// NeedFS skips the test (see [Skip]) unless the kernel supports each of these filesystem types, such as
// "btrfs".
func NeedFS(t testing.TB, names ...string) {
	t.Helper()
	list, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.Contains(string(list), "\t"+name+"\n") {
			Skip(t, "the filesystem "+name, "it is not in /proc/filesystems; try modprobe "+name)
		}
	}
}

// NeedDevice skips the test unless this user may open the device at path. [WithFUSE] and [WithTUN] give a
// test's user such a device.
func NeedDevice(t testing.TB, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		Skip(t, "the device "+path, err.Error()+"; try chmod 0666 "+path)
	}
	f.Close()
}

// NeedProgram skips the test (see [Skip]) unless each of these programs, such as "git", is installed.
func NeedProgram(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := run.Look(name)
		if errors.Is(err, run.ErrMissing) {
			Skip(t, "the program "+name, strings.Join(errs.HintsOf(err), ""))
		}
	}
}
