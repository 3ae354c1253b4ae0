//go:build linux

package overlay

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/poll"
)

// TestAForkIsKnownToBeUnchangedUntilItChanges changes each of the files that decide whether a fork is unchanged. Cost:
// 0.06 s for each, until its change time has settled.
func TestAForkIsKnownToBeUnchangedUntilItChanges(t *testing.T) {
	dir := t.TempDir()
	record, upper, root := filepath.Join(dir, "record"), filepath.Join(dir, "upper"), filepath.Join(dir, "root")
	for _, err := range []error{os.WriteFile(record, []byte("one"), 0o600), os.Mkdir(upper, 0o755), os.Mkdir(root, 0o755)} {
		must(t, err)
	}
	var u unchangedForks
	fork := forkBase{record, "base"}
	if u.has(fork) {
		t.Error("a fork that was never looked at is unchanged")
	}
	if _, ok := statSettled(record, upper, root); ok {
		t.Error("files that have just changed are settled")
	}
	for name, change := range map[string]func() error{
		"an entry of the upper layer": func() error { return os.Mkdir(filepath.Join(upper, "new"), 0o755) },
		"the root of the fork":        func() error { return os.Chmod(upper, 0o700) },
		"the record":                  func() error { return os.WriteFile(record, []byte("two"), 0o600) },
		"another record": func() error {
			next := record + "2"
			if err := os.WriteFile(next, []byte("one"), 0o600); err != nil {
				return err
			}
			return os.Rename(next, record)
		},
		"the root of the base": func() error { return os.Chmod(root, 0o700) },
		"a record that is gone": func() error {
			return os.Rename(record, record+".gone")
		},
	} {
		_ = os.Remove(filepath.Join(upper, "new"))
		_ = os.Rename(record+".gone", record)
		must(t, os.Chmod(root, 0o755))
		var seen []fileState
		must(t, poll.Until(t.Context(), time.Millisecond, time.Millisecond, func() (ok bool, _ error) {
			seen, ok = statSettled(record, upper, root)
			return ok, nil
		}))
		u.add(fork, seen, upper)
		for range 2 {
			if !u.has(fork) || u.has(forkBase{record, "other"}) {
				t.Fatalf("before a change of %s: the fork is not known to be unchanged, or another comparison is", name)
			}
		}
		must(t, change())
		if u.has(fork) {
			t.Errorf("a change of %s is not seen", name)
		}
	}
	_ = os.Remove(filepath.Join(upper, "new")) // of the last change
	must(t, os.Mkdir(filepath.Join(upper, "new"), 0o755))
	u.add(fork, nil, upper)
	if u.has(fork) {
		t.Error("a fork with an entry in its upper layer is known to be unchanged")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
