//go:build linux

package snapshottest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The possible results of the test of one rule for one backend, in the table of docs/conformance.md.
const (
	passed  = "pass"
	failed  = "fail"
	skipped = "skip"
	none    = "not offered"
)

type report struct {
	Subject  string
	Promises []result
}

type result struct{ Name, Outcome string }

func (r *report) add(name, outcome string) {
	r.Promises = append(r.Promises, result{name, outcome})
}

func outcomeOf(ok, skip bool) string {
	switch {
	case !ok:
		return failed
	case skip:
		return skipped
	}
	return passed
}

// write stores which rules of package snapshot (promises) a backend fulfilled in a run of the conformance
// tests, as JSON, in the directory that SNAPFS_CONFORMANCE_OUT names. Without that variable it does nothing.
func (r *report) write(t *testing.T) {
	dir := os.Getenv("SNAPFS_CONFORMANCE_OUT")
	if dir == "" {
		return
	}
	text, err := json.MarshalIndent(r, "", "\t")
	if err == nil {
		err = os.MkdirAll(dir, 0o777)
	}
	if err == nil {
		file := strings.NewReplacer(" ", "-", "(", "", ")", "").Replace(r.Subject) + ".json"
		path := filepath.Join(dir, file)
		_ = os.Remove(path) // an earlier run may have been another user's
		err = os.WriteFile(path, append(text, '\n'), 0o666)
	}
	if err != nil {
		t.Error("writing the results:", err)
	}
}
