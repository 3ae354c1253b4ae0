package landlock

import (
	"errors"
	"testing"

	"github.com/snapfs/snapfs/errs"
)

// A list of writable paths would not hold for a tree below /tmp, so a container with both does not start. A tree below
// /usr, or /etc itself, can always be read.
func TestListsDoNotHoldBelowWhatIsAlwaysAllowed(t *testing.T) {
	for _, c := range []struct {
		rules Rules
		tree  string
		want  error
	}{
		{Rules{Writable: []string{"/tmp/work/tree/out"}}, "/tmp/work/tree", errs.ErrNotSupported},
		{Rules{Writable: []string{}}, "/tmp/work/tree", errs.ErrNotSupported},
		{Rules{Writable: []string{}}, "/usr/src/tree", nil},
		{Rules{Writable: []string{"/tmp/work"}}, "/tmp/work/tree", nil},
		{Rules{Writable: []string{}}, "/tmpx/tree", nil},
		{Rules{Readable: []string{}}, "/etc", nil},
		{Rules{}, "/tmp/work/tree", nil},
	} {
		if err := c.rules.Check(WriteABI, []string{"/home", c.tree}); !errors.Is(err, c.want) {
			t.Errorf("%+v, tree %s: %v, want %v", c.rules, c.tree, err, c.want)
		}
	}
}

// TestAnOldLandlockIsNamed asks for each kind of list with versions of Landlock up to one that can enforce it.
func TestAnOldLandlockIsNamed(t *testing.T) {
	for _, c := range []struct {
		rules Rules
		need  int
	}{
		{Rules{}, 0},
		{Rules{Execute: []string{}}, ExecuteABI},
		{Rules{Writable: []string{}}, WriteABI},
		{Rules{Readable: []string{}}, ReadABI},
		{Rules{Readable: []string{}, Writable: []string{}}, WriteABI},
	} {
		for has := range WriteABI + 1 {
			if err := c.rules.Check(has, nil); errors.Is(err, ErrOld) != (has < c.need) || errors.Is(err, errs.ErrNotSupported) != (has < c.need) {
				t.Errorf("version %d of Landlock, %d is needed: %v", has, c.need, err)
			}
		}
	}
}
