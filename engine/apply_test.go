package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/poll"
)

// strictly are the options of an apply: any drift is a conflict.
func strictly(only ...string) reconcile.PromoteOptions {
	return reconcile.PromoteOptions{PlanOptions: reconcile.PlanOptions{Only: only, Drift: reconcile.RefuseDrift}}
}

// dry changes options so that nothing is changed.
func dry(o reconcile.PromoteOptions) reconcile.PromoteOptions {
	o.DryRun = true
	return o
}

func (b *bench) read(name string) string {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.workspace, name))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func TestApplyBringsTheWorkspaceBack(t *testing.T) { asEach(t, applyBringsTheWorkspaceBack) }

func applyBringsTheWorkspaceBack(t *testing.T, b *bench) {
	b.write("keep", "0")
	b.write("gone", "0")
	time.Sleep(20 * time.Millisecond) // drift is told by the clock of the filesystem
	b.new("a")
	b.in("a", "printf 1 > keep; rm gone; mkdir d; printf 2 > d/new; printf x > ../beside")
	got, err := b.Reconcile.Promote(t.Context(), "a", strictly())
	if err != nil {
		t.Fatal(err)
	}
	if got.Elsewhere != 1 {
		t.Errorf("%+v: want one change elsewhere", got)
	}
	if b.read("keep") != "1" || b.read("d/new") != "2" {
		t.Errorf("keep %q, d/new %q", b.read("keep"), b.read("d/new"))
	}
	for _, absent := range []string{"gone", "../beside"} {
		if _, err := os.Lstat(filepath.Join(b.workspace, absent)); err == nil {
			t.Errorf("%s is there", absent)
		}
	}
	b.in("a", "printf 3 > keep")
	if _, err := b.Reconcile.Promote(t.Context(), "a", strictly()); err != nil {
		t.Errorf("working on and applying again: %v", err)
	}
	if b.read("keep") != "3" {
		t.Errorf("keep is %q after the second apply", b.read("keep"))
	}
}

func TestApplyRefusesWhereTheRealFileHasMovedOn(t *testing.T) {
	asBoth(t, applyRefusesWhereTheRealFileHasMovedOn)
}

func applyRefusesWhereTheRealFileHasMovedOn(t *testing.T, b *bench) {
	b.write("f", "0")
	b.write("g", "0")
	time.Sleep(20 * time.Millisecond)
	b.new("a")
	b.in("a", "printf 1 > f; printf 1 > g")
	time.Sleep(20 * time.Millisecond)
	b.write("f", "mine")
	_, err := b.Reconcile.Promote(t.Context(), "a", strictly())
	if !errors.Is(err, errs.ErrDrifted) || !strings.Contains(err.Error(), "f") {
		t.Errorf("got %v, want ErrDrifted that names f", err)
	}
	if b.read("f") != "mine" || b.read("g") != "0" {
		t.Errorf("f %q, g %q: something was touched", b.read("f"), b.read("g"))
	}
	if _, err := b.Reconcile.Promote(t.Context(), "a", strictly(filepath.Join(b.workspace, "g"))); err != nil {
		t.Errorf("applying what has not moved: %v", err)
	}
	if b.read("f") != "mine" || b.read("g") != "1" {
		t.Errorf("f %q, g %q after applying g alone", b.read("f"), b.read("g"))
	}
	if _, err := b.Reconcile.Promote(t.Context(), "a", strictly(filepath.Join(b.workspace, "nothing"))); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("a path without changes: %v, want ErrInvalid", err)
	}
}

// What snapfs saw of the base may be lost: no room to keep it.
func TestApplyBringsNothingBackThatTheUserMayHaveDeleted(t *testing.T) {
	asBoth(t, applyBringsNothingBackThatTheUserMayHaveDeleted)
}

func applyBringsNothingBackThatTheUserMayHaveDeleted(t *testing.T, b *bench) {
	b.write("old", "theirs")
	b.write("gone", "theirs")
	b.tooLargeToRead()
	b.new("x")
	b.in("x", "echo more >> gone; echo new > fresh")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(b.Supervise.Stop(t.Context(), "x"))
	must(poll.Until(t.Context(), time.Millisecond, 10*time.Millisecond, func() (bool, error) { // the base may still be recorded
		return os.RemoveAll(filepath.Join(b.state, "sandboxes/x/bases")) == nil, nil
	}))
	nextTick()
	must(os.Remove(filepath.Join(b.workspace, "gone")))
	if _, err := b.Reconcile.Promote(t.Context(), "x", strictly()); !errors.Is(err, errs.ErrDrifted) || !strings.Contains(err.Error(), "cannot tell whether") {
		t.Errorf("apply: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(b.workspace, "gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("gone: %v", err)
	}
}
