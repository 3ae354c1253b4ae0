//go:build linux

package lower

import (
	"fmt"
	"testing"

	"github.com/snapfs/snapfs/internal/vfs"
)

func TestAReadOfAnOtherVersionIsKnown(t *testing.T) {
	tree := &Tree{late: lateReads{since: vfs.Timestamp{Sec: 50}}}
	at := func(ino uint64, sec int64) *vfs.Stat { return &vfs.Stat{Ino: ino, CTime: vfs.Timestamp{Sec: sec}} }
	tree.reads.add("f", at(1, 10))
	tree.reads.add("f", at(1, 60)) // the first counts
	check := func(path string, now *vfs.Stat, ino uint64, other bool) {
		t.Helper()
		var shown vfs.Stat
		if now != nil {
			shown = *now
		}
		if v, is := tree.ReadBefore(path, now, shown); is != other || is && v.Ino != ino {
			t.Errorf("%s: %+v, %v", path, v, is)
		}
	}
	check("f", at(1, 10), 1, false)
	check("f", at(1, 60), 1, true)
	check("f", at(2, 10), 1, true)
	check("f", nil, 1, true)
	check("unread", at(3, 60), 0, false)
	check("unread", nil, 0, false)
	for i := range maxReads {
		tree.reads.add(fmt.Sprint("f", i), at(9, 9))
	}
	if len(tree.reads.seen) != maxReads {
		t.Errorf("%d paths are recorded", len(tree.reads.seen))
	}
	check("f", at(1, 10), 1, false)
	check("unread", at(3, 60), 0, true) // it may have been read before
	check("unread", at(3, 40), 0, false)
	next := &Tree{}
	next.TakeOver(tree)
	if _, is := next.ReadBefore("f", at(2, 2), *at(2, 2)); !is {
		t.Error("a tree that continues does not know what was read")
	}
}
