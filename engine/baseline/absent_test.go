package baseline

import (
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
)

// deep asks for each path of a chain of directories below one that the base does not have.
func deep(depth int) time.Duration {
	best := time.Hour
	for range 3 {
		k := Baseline{Nodes: map[string]Entry{"/w/d": {}}}
		path := "/w/d" + strings.Repeat("/dir", depth)
		start := time.Now()
		for at := len("/w/d/dir"); at <= len(path); at += len("/dir") {
			if !k.Absent(path[:at]) {
				return 0
			}
		}
		best = min(best, time.Since(start))
	}
	return best
}

func TestAbsenceOfADeepTreeIsNotCubic(t *testing.T) {
	short, long := deep(250), deep(2000)
	if short == 0 || long == 0 {
		t.Fatal("a path below an absent directory is not absent")
	}
	if ratio := float64(long) / float64(short); ratio > 200 { // 64 for the length of the paths alone, 512 for a search each
		t.Errorf("8 times the depth took %.0f times as long (%v, %v)", ratio, short, long)
	}
}

func TestAbsenceFollowsEntriesThatAreSetAndRemoved(t *testing.T) {
	k := Baseline{Nodes: map[string]Entry{}}
	check := func(when, path string, want bool) {
		t.Helper()
		if got := k.Absent(path); got != want {
			t.Errorf("%s: %s absent: %v", when, path, got)
		}
	}
	check("nothing known", "/a/b/c", false)
	k.Set("/a", Entry{})
	check("its top is absent", "/a/b/c", true)
	check("its top is absent", "/a/b", true)
	check("its own entry", "/a", false)
	k.Set("/a/b", Entry{Unknown: "why"})
	check("a nearer one is unknown", "/a/b/c", false)
	check("beside it", "/a/x/c", true)
	k.Set("/a", Entry{Node: &diff.Node{}})
	check("a file is above", "/a/x/c", true)
	k.Unset("/a/b")
	k.Unset("/a")
	check("removed", "/a/b/c", false)
	k.Set("/a", Entry{Promoted: true})
	k.UndoPromotion("/a")
	check("its promotion is undone", "/a/b/c", false)
}
