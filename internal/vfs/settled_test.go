package vfs

import (
	"testing"
	"time"
)

// TestAFileIsSettledOnceItsChangeTimeIsPast asks at several ages of a change, on a filesystem that stores
// nanoseconds, and on one that stores only seconds, where a change in the same second has the same time.
func TestAFileIsSettledOnceItsChangeTimeIsPast(t *testing.T) {
	for _, c := range []struct {
		nsec uint32
		age  time.Duration
		want bool
	}{
		{1, 0, false},
		{1, 40 * time.Millisecond, false},
		{1, 60 * time.Millisecond, true},
		{0, 60 * time.Millisecond, false},
		{0, 999 * time.Millisecond, false},
		{0, 2 * time.Second, false},
		{0, 3 * time.Second, true},
	} {
		st := Stat{CTime: Timestamp{Sec: 1_700_000_000, Nsec: c.nsec}}
		if got := st.Settled(st.CTime.Time().Add(c.age)); got != c.want {
			t.Errorf("a change with %d nanoseconds, %v ago: settled is %v", c.nsec, c.age, got)
		}
	}
}
