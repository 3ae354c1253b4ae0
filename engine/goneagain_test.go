package engine_test

import (
	"errors"
	"testing"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
)

// A sandbox removes its version of a file that the person has removed before. What the person makes there later shows
// inside, and no promotion removes it: the sandbox has no change there.
func TestAFileThatBothSidesRemovedIsOfTheLiveBase(t *testing.T) {
	for name, promoted := range map[string]bool{"promoted": true, "only changed": false} {
		t.Run(name, func(t *testing.T) {
			asBoth(t, func(t *testing.T, b *bench) {
				b.write("f", "old\n")
				tick()
				b.new("s")
				promote := func() {
					t.Helper()
					if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				b.in("s", "echo mine > f")
				if promoted {
					promote()
				}
				b.outside("rm f")
				b.in("s", "rm f")
				b.outside("echo theirs > f")
				b.in("s", "grep theirs f; echo other > other")
				promote()
				if got := b.outside("cat f other"); got != "theirs\nother\n" {
					t.Errorf("the workspace has %q", got)
				}
			})
		})
	}
}

// The same, and the sandbox edits the person's new file, which the person then edits or removes: that is a conflict.
func TestAFileMadeAfterBothSidesRemovedItIsContested(t *testing.T) {
	for name, agree := range map[string]bool{"promoted between": true, "not promoted": false} {
		for later, script := range map[string]string{"removed": "rm f", "edited": "echo more > f", "replaced": "rm f; echo more > f"} {
			t.Run(name+", "+later, func(t *testing.T) {
				asBoth(t, func(t *testing.T, b *bench) {
					b.write("f", "old\n")
					tick()
					b.new("s")
					promote := func() error {
						_, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{})
						return err
					}
					b.in("s", "echo mine > f")
					b.outside("rm f")
					b.in("s", "rm f; echo other > other")
					if agree {
						if err := promote(); err != nil {
							t.Fatal(err)
						}
					}
					b.outside("echo theirs > f")
					b.in("s", "grep theirs f; echo mine again > f")
					b.outside(script)
					want := b.outside("cat f 2>&1 || true")
					if err := promote(); !errors.Is(err, errs.ErrConflict) {
						t.Errorf("the promotion says %v", err)
					}
					if got := b.outside("cat f 2>&1 || true"); got != want {
						t.Errorf("f is %q, want %q", got, want)
					}
				})
			})
		}
	}
}
