package engine_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/errs"
)

// told compares two states and lists what it finds in the workspace, renames
// first.
func (b *bench) told(left, right compare.Ref) string {
	b.t.Helper()
	c, err := b.Compare.Compare(b.t.Context(), left, right)
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close()
	if err := c.FindRenames(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	var lines []string
	for _, p := range c.Parts {
		for _, r := range p.Renames {
			if p.Workspace {
				lines = append(lines, "R "+r.From+" "+r.To)
			}
		}
	}
	for _, p := range c.Parts {
		for _, c := range p.Changes {
			if p.Workspace && c.Path != "." {
				lines = append(lines, c.Kind.Letter()+" "+c.Path)
			}
		}
	}
	return strings.Join(lines, ", ")
}

func TestAnyTwoStatesAreCompared(t *testing.T) { asBoth(t, anyTwoStates) }

func TestAnyTwoStatesOfFrozenTreesAreCompared(t *testing.T) { onBtrfs(t, anyTwoStates) }

func anyTwoStates(t *testing.T, b *bench) {
	b.write("same", "0")
	b.write("edited", "0")
	b.write("old", "the content by which it is known again")
	tick()
	b.new("a")
	b.new("b")
	b.in("a", "printf 1 > edited; printf a > only-a")
	if _, err := b.Snapshot(t.Context(), "a", "first"); err != nil {
		t.Fatal(err)
	}
	b.in("a", "rm only-a; printf 2 > both")
	// What is written in both may have got one inode number, size and even one
	// time: it is compared all the same.
	b.in("b", "mv old new; printf 3 > both")
	real, sandboxA, sandboxB := compare.Ref{}, compare.Ref{Sandbox: "a"}, compare.Ref{Sandbox: "b"}
	first, baseB := compare.Ref{Sandbox: "a", State: "first"}, compare.Ref{Sandbox: "b", Base: true}
	for _, c := range []struct {
		left, right compare.Ref
		want        string
	}{
		{sandboxA, sandboxB, "R old new, M both, M edited, A new, D old"},
		{sandboxB, sandboxA, "R new old, M both, M edited, D new, A old"},
		{real, sandboxB, "R old new, A both, A new, D old"},
		{sandboxB, real, "R new old, D both, D new, A old"},
		{first, sandboxA, "A both, D only-a"},
		{sandboxA, first, "D both, A only-a"},
		{first, sandboxB, "R old new, A both, M edited, A new, D old, D only-a"},
		{baseB, first, "M edited, A only-a"},
		{baseB, real, ""},
		{sandboxA, sandboxA, ""},
	} {
		if got := b.told(c.left, c.right); got != c.want {
			t.Errorf("%+v and %+v: %s\nwant %s", c.left, c.right, got, c.want)
		}
	}
	b.write("edited", "real") // what the sandbox has changed has moved on
	if got := b.told(sandboxA, real); got != "D both, M edited" {
		t.Errorf("a and the real tree: %s", got)
	}
	if _, err := b.Compare.Compare(t.Context(), real, real); !errors.Is(err, errs.ErrNotSupported) {
		t.Errorf("the real tree with itself: %v", err)
	}
	if _, err := b.Compare.Compare(t.Context(), real, compare.Ref{Sandbox: "none"}); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("a sandbox that is not there: %v", err)
	}
	c, err := b.Compare.Compare(t.Context(), sandboxA, sandboxB)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if !c.Parts[0].Workspace || slices.ContainsFunc(c.Parts[1:], func(p compare.Part) bool { return p.Workspace }) || c.Parts[0].Root != filepath.Clean(b.workspace) {
		t.Errorf("the workspace is not the first part: %+v", c.Parts)
	}
}
