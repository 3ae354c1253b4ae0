package selftest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate"
)

// TestARuleHoldsWithoutAProbeOnlyIfItCannotBeEnforced has tests of rules whose sandboxes did not start.
func TestARuleHoldsWithoutAProbeOnlyIfItCannotBeEnforced(t *testing.T) {
	p := prover{req: hostfs.Request{Workspace: "/w"}, program: []string{"/bin/true"}}
	old := &errs.Error{Op: "allowing paths", Kind: errs.ErrNotSupported, Err: fmt.Errorf("%w: version 1", isolate.ErrOldLandlock)}
	other := errs.New("copying", "/w", errs.ErrNotSupported, "no backend copies this tree")
	var held []string
	for _, tr := range p.ruleTrials() {
		if r := tr.notStarted(fmt.Errorf("starting: %w", old)); r.Held {
			held = append(held, r.Probe)
		} else if r.WasTried() {
			t.Errorf("%s was not tried, and the report says otherwise: %+v", tr.probe, r)
		}
		for _, err := range []error{other, errs.ErrNotSupported, errs.ErrNoSpace} {
			if r := tr.notStarted(err); r.Held || r.WasTried() {
				t.Errorf("%s after %v: %+v", tr.probe, err, r)
			}
		}
	}
	if want := []string{"writable", "readable", "tools-allow", "tools-digest", "tools-arguments"}; !slices.Equal(held, want) {
		t.Errorf("%q hold where Landlock is too old, want %q", held, want)
	}
}

// TestAProgramOfOneNameIsPreferred: a true with a second hard link, such as perf makes, comes after a test without
// one.
func TestAProgramOfOneNameIsPreferred(t *testing.T) {
	dir := treetest.Dir(t)
	for _, name := range []string{"true", "test"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	for _, want := range []string{"true", "test", "true"} {
		if got := harmlessProgram("true", "test"); got != filepath.Join(dir, want) {
			t.Errorf("%s, want %s", got, want)
		}
		if err := os.Link(filepath.Join(dir, want), filepath.Join(dir, want+".2")); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
}
