package main

import (
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/reconcile"
)

// TestWhatIsUnfinishedIsShown, with what mends it, by all that look at a sandbox, and as
// harmless text.
func TestWhatIsUnfinishedIsShown(t *testing.T) {
	u := reconcile.Unfinished{ID: "1", Sandbox: "fix", Target: "/mnt/\x1b[2Jw", Why: "no such file or directory", Journal: "/state/promotions/1.journal"}
	info := engine.Info{Record: &catalog.Record{Name: "fix"}, Unfinished: &u}
	var show, ls, doctor strings.Builder
	for _, err := range []error{
		printSandbox(&show, info), printSandboxes(&ui{json: true}, &ls, []engine.Info{info}, true),
		printExamination(&doctor, &examination{Unfinished: []reconcile.Unfinished{u}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, got := range map[string]string{"show": show.String(), "ls": ls.String(), "doctor": doctor.String()} {
		if !strings.Contains(got, "an apply of fix") || !strings.Contains(got, "mount the filesystem of") || strings.Contains(got, "\x1b") {
			t.Errorf("%s: %q", name, got)
		}
	}
	if !strings.Contains(doctor.String(), "hint: snapfs undo --forget 1 ") {
		t.Errorf("doctor: %q", &doctor)
	}
}
