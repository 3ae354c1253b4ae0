package compare

import (
	"os"
	"testing"

	"github.com/snapfs/snapfs/engine/diff"
)

// A workspace may belong to a group that its owner is not in. His sandbox's copy
// of its root cannot, and that is no change.
func TestAGroupThatAUserCannotGiveIsNoChange(t *testing.T) {
	me := uint32(os.Geteuid())
	root := func(what diff.Aspect, gid uint32) []diff.Change {
		return []diff.Change{
			{Path: ".", Kind: diff.Modified, What: what, Old: &diff.Node{UID: me, GID: gid}, New: &diff.Node{UID: me}},
			{Path: "f", Kind: diff.Added, New: &diff.Node{}},
		}
	}
	const foreign = 1<<31 + 5
	if got := withoutRootOwner(root(diff.Owner, foreign)); len(got) != 1 || got[0].Path != "f" {
		t.Errorf("the root's owner is told: %v", got)
	}
	if got := withoutRootOwner(root(diff.Owner|diff.Mode, foreign)); len(got) != 2 || got[0].What != diff.Mode || got[0].New.GID != foreign {
		t.Errorf("its mode is not told alone: %v", got)
	}
	if got := withoutRootOwner(root(diff.Owner, uint32(os.Getegid()))); len(got) != 2 || got[0].What != diff.Owner {
		t.Errorf("a group that he could give is not told: %v", got)
	}
}
