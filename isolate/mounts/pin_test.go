//go:build linux

package mounts

import (
	"slices"
	"testing"
)

// TestDirectoriesOfWhatIsCoveredArePinned: the parents of hidden and read-only paths, and of forbidden and guarded
// programs. Otherwise a command could rename /usr/bin, and the next container would cover nothing under the new name.
func TestDirectoriesOfWhatIsCoveredArePinned(t *testing.T) {
	got := pins(Spec{
		Mounts:   []Mount{{Target: "/", Source: "/tree"}, {Target: "/srv", Source: "/srv", ReadOnly: true}},
		Hide:     []string{"/home/ann/.ssh"},
		ReadOnly: []string{"/work/a/b"},
		NoExec:   []string{"/opt/tool/run", "/srv/x/run"},
		Guarded:  []string{"/usr/bin/git"},
	})
	want := []string{"/home", "/home/ann", "/opt", "/opt/tool", "/usr", "/usr/bin", "/work", "/work/a"}
	if !slices.Equal(got[0], want) || len(got[1]) > 0 {
		t.Errorf("pinned are %q, want %q", got, want)
	}
}
